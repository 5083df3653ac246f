"""`penstock simulate`: what it prints and how it ends."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.testing.simulation import world
from penstock.testing.simulation.history import Delivery, History, InvariantBroken

runner = CliRunner()
ALONE = ["simulate", "router", "--jobs", "1"]


def scripted(monkeypatch: pytest.MonkeyPatch, errors: Mapping[int, BaseException]) -> list[int]:
    """Simulations that take no time, and end in these errors; the seeds that ran."""
    ran: list[int] = []

    def simulate(seed: int) -> History:
        ran.append(seed)
        if seed in errors:
            raise errors[seed]
        return History(10, 1800.0, (Delivery(1.0, "a"), Delivery(2.0, "b")))

    monkeypatch.setattr(world, "simulate_router", simulate)
    return ran


def test_the_seeds_asked_for_run_and_what_they_did_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = scripted(monkeypatch, {})
    result = runner.invoke(app, [*ALONE, "--first", "7", "--seeds", "4"])

    assert ran == [7, 8, 9, 10]
    assert result.exit_code == 0
    assert "4 of 4 seeds" in result.stdout
    assert "40 messages, 8 deliveries, 2.0 simulated hours" in result.stdout
    assert result.stdout.endswith("every promise held\n")


def test_a_failure_names_its_seed_and_how_to_run_it_again_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = {2: InvariantBroken("seed 2: message m is lost"), 4: ZeroDivisionError("oops")}
    ran = scripted(monkeypatch, errors)
    result = runner.invoke(app, [*ALONE, "--seeds", "6"])

    assert ran == list(range(6))
    assert result.exit_code == 1
    assert "seed 2: message m is lost" in result.stderr
    assert "2 failed" in result.stdout
    assert "simulate router --first 2 --seeds 1   # seed 2: message m is lost" in result.stdout
    assert "simulate router --first 4 --seeds 1   # seed 4: ZeroDivisionError: oops" in result.stdout


def test_ctrl_c_tells_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, {1: InvariantBroken("seed 1: bad"), 3: KeyboardInterrupt()})
    result = runner.invoke(app, [*ALONE, "--seeds", "9", "--json"])

    assert result.exit_code == 130
    figures = json.loads(result.stdout)
    assert (figures["seeds"], figures["interrupted"]) == (3, True)
    assert figures["failed"] == [{"seed": 1, "finding": "seed 1: bad"}]


def test_the_log_is_silent_while_it_runs_and_not_after(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled: list[bool] = []

    def simulate(_: int) -> History:
        enabled.append(logging.getLogger("penstock").isEnabledFor(logging.CRITICAL))
        return History(0, 0.0, ())

    monkeypatch.setattr(world, "simulate_router", simulate)
    runner.invoke(app, [*ALONE, "--seeds", "1"])

    assert enabled == [False]
    assert logging.getLogger("penstock").isEnabledFor(logging.CRITICAL)


def test_several_processes_share_real_seeds() -> None:
    command = [sys.executable, "-m", "penstock", "simulate", "router", "--seeds", "3", "--jobs", "2", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    figures = json.loads(ran.stdout)
    assert (figures["seeds"], figures["failed"], figures["interrupted"]) == (3, [], False)
    assert figures["deliveries"] >= figures["messages"] > 0


def test_ctrl_c_ends_all_processes() -> None:
    command = [sys.executable, "-m", "penstock", "simulate", "router", "--seeds", "1000000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        assert "of 1,000,000 seeds" in process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)
        # Ends when the last process that inherited the pipes has closed them.
        stdout, stderr = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "of 1,000,000 seeds in" in stdout
    assert "Traceback" not in stderr
