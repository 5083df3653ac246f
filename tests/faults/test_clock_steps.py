"""The machine's clock is set while everything runs: deliveries, retries and leases go on as if it were not."""

import json
import os
from pathlib import Path

import pytest

from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.penstock_process import Machine

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


class SetClock:
    """The clock of processes under libfaketime."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.settings = {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            # As on a real machine, where only the wall clock is set.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.step(0)

    def step(self, by_s: int) -> None:
        """Set the clock to this much before or after the true time."""
        self._file.write_text(f"{by_s:+d}\n")


@pytest.fixture
def clock(tmp_path: Path) -> SetClock:
    if LIBRARY is None:
        if os.environ.get("CI") == "true":
            pytest.fail("libfaketime is not installed")
        pytest.skip("libfaketime is not installed")
    return SetClock(tmp_path / "clock")


@pytest.mark.long
@pytest.mark.parametrize("steps_s", [(-600,), (3600, 0)], ids=["back", "ahead and back"])
async def test_retries_go_on_when_the_clock_is_set(tmp_path: Path, clock: SetClock, steps_s: tuple[int, ...]) -> None:
    with Machine(tmp_path, settings=clock.settings) as machine:
        async with RecordingReceiver(Reply(500)) as receiver:
            options = ("--retry", ",".join(["1"] * 20))
            machine.penstock("subscriptions", "create", "s", "--pattern", "t:**", "--target", receiver.url, *options)
            machine.penstock("publish", "t:one", "--key", "k")
            seen = len(await receiver.received(1, 60))
            for step_s in steps_s:
                clock.step(step_s)
                seen = len(await receiver.received(seen + 2, 30))
            receiver.script(*[Reply(200)] * 10)
            machine.penstock("publish", "t:two", "--key", "other")
            await receiver.received(seen + 2, 30)


@pytest.mark.long
async def test_order_and_due_times_survive_a_clock_that_is_set_back_between_two_starts(
    tmp_path: Path, clock: SetClock
) -> None:
    clock.step(3600)
    machine = Machine(tmp_path, settings=clock.settings)
    async with RecordingReceiver(Reply(500)) as receiver:
        with machine:
            options = ("--retry", ",".join(["1"] * 50))
            machine.penstock("subscriptions", "create", "s", "--pattern", "t:**", "--target", receiver.url, *options)
            machine.penstock("publish", "t:first", "--key", "k")
            await receiver.received(1, 60)
            machine.kill()
            clock.step(0)
            machine.start()
            machine.penstock("publish", "t:second", "--key", "k")
            await receiver.received(len(receiver.requests) + 2, 60)
            receiver.script(*[Reply(200)] * 10)
            types: list[str] = []
            while "t:second" not in types:
                requests = await receiver.received(len(types) + 1, 60)
                types = [json.loads(request.body)["type"] for request in requests]
    assert set(types[:-1]) == {"t:first"}
