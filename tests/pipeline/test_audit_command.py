"""`penstock pipeline audit` as people run it."""

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.spark.database import SparkDatabase
from tests.rigs.fan_out import FanOutRig
from tests.rigs.penstock_process import run_penstock

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

WAIT_S = 300


def _audit(*options: str) -> "subprocess.CompletedProcess[str]":
    return run_penstock("pipeline", "audit", *options, within_s=WAIT_S)


def test_findings_are_told_in_json_and_on_a_page_and_the_exit_code_is_one(tmp_path: Path) -> None:
    rig = FanOutRig(SparkDatabase(f"sqlite://{tmp_path}/jobs.db"))
    rig.close()
    rig.run(
        "INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms) "
        "VALUES ('nobody', 1, 'DELIVERED', CAST(strftime('%s', 'now', '-1 hour') AS INTEGER) * 1000, 5)"
    )
    page = tmp_path / "audit.html"
    done = _audit("--data", str(tmp_path), "--since", "24h", "--json", "--html", str(page))
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["clean"] is False
    assert told["totals"]["UNKNOWN_JOB"] == 1
    assert [each["jobId"] for each in told["findings"]] == ["nobody"]
    assert "nobody (attempt 1)" in page.read_text()


def test_a_database_that_is_not_there_is_told_in_a_sentence_with_an_exit_code_of_its_own() -> None:
    done = _audit("--database", "postgresql://penstock@127.0.0.1:1/none")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr


def test_times_that_are_none_are_told_before_anything_starts(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path)]
    bad = CliRunner().invoke(app, ["pipeline", "audit", *data, "--since", "lately"])
    assert bad.exit_code == 2
    assert "is not a time" in bad.output
    nothing = CliRunner().invoke(app, ["pipeline", "audit", *data, "--since", "1h", "--until", "2h"])
    assert nothing.exit_code == 2
    assert "--until is not after --since" in nothing.output
    assert CliRunner().invoke(app, ["pipeline", "audit", *data, "--tolerance", "soon"]).exit_code == 2
