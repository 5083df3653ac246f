"""`penstock pipeline fan-out` as people run it, and as machines end it: with kill -9, in the middle of its work."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.spark.database import SparkDatabase
from tests.rigs.fan_out import FanOutRig
from tests.rigs.penstock_process import PenstockProcess, run_penstock, wait_until

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

WAIT_S = 300
FEW_ROWS = {"PENSTOCK_PIPELINE__MAX_ROWS_PER_BATCH": "200", "PENSTOCK_PIPELINE__TRIGGER_MS": "0"}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[FanOutRig]:
    rig = FanOutRig(SparkDatabase(f"sqlite://{tmp_path}/jobs.db"))
    yield rig
    rig.close()


def test_it_goes_on_after_a_kill_and_says_what_it_did(rig: FanOutRig, tmp_path: Path) -> None:
    subscriptions = [rig.subscribe(name) for name in ("billing", "shipping")]
    events = rig.publish(2000)
    fan_out = PenstockProcess(tmp_path, "fan-out", ("pipeline", "fan-out", "--data", str(tmp_path)), FEW_ROWS)
    fan_out.launch()
    wait_until(lambda: rig.jobs() or fan_out.has_ended, WAIT_S, fan_out.log)
    fan_out.kill()
    assert 0 < len(rig.jobs()) < 4000, fan_out.log()

    options = ("pipeline", "fan-out", "--data", str(tmp_path), "--once")
    ran = run_penstock(*options, settings=FEW_ROWS, within_s=WAIT_S)

    assert ran.returncode == 0, ran.stderr
    told = ran.stdout + ran.stderr
    assert "200 events, 400 jobs" in told
    assert rig.pairs() == sorted((event.id, each.id) for event in events for each in subscriptions)
    assert rig.waiting() == []
