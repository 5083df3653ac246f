"""`penstock pipeline fan-out` as people run it, and as machines end it: with kill -9, in the middle of its work."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from penstock.spark.database import SparkDatabase
from tests.rigs.fan_out import FanOutRig

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

WAIT_S = 300
FEW_ROWS = {**os.environ, "PENSTOCK_PIPELINE__MAX_ROWS_PER_BATCH": "200", "PENSTOCK_PIPELINE__TRIGGER_MS": "0"}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[FanOutRig]:
    rig = FanOutRig(SparkDatabase(f"sqlite://{tmp_path}/jobs.db"))
    yield rig
    rig.close()


@contextmanager
def fan_out(tmp_path: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "penstock", "pipeline", "fan-out", "--data", str(tmp_path), *options]
    with subprocess.Popen(
        command, env=FEW_ROWS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            # Spark's Java is a child of its own: nothing may be left behind.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_it_goes_on_after_a_kill_and_says_what_it_did(rig: FanOutRig, tmp_path: Path) -> None:
    subscriptions = [rig.subscribe(name) for name in ("billing", "shipping")]
    events = rig.publish(2000)
    with fan_out(tmp_path) as process:
        deadline = monotonic() + WAIT_S
        while not (made := len(rig.jobs())):
            assert process.poll() is None, process.communicate()[0]
            assert monotonic() < deadline
            sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    assert made < 4000

    with fan_out(tmp_path, "--once") as process:
        told, _ = process.communicate(timeout=WAIT_S)

    assert process.returncode == 0, told
    assert "200 events, 400 jobs" in told
    assert rig.pairs() == sorted((event.id, each.id) for event in events for each in subscriptions)
    assert rig.waiting() == []
