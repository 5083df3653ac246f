"""`penstock pipeline replay` as a process of its own, for tests."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from penstock.spark.database import SparkDatabase
from penstock.testing.receiver import RecordingReceiver
from tests.rigs.penstock_process import LOOPBACK, PenstockProcess
from tests.rigs.replay import ReplayRig

WITHIN_S = 400


class ReplayCommand(PenstockProcess):
    """One run of the command, ended after its `async with` block with all that it started."""

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory, "replay", ("pipeline", "replay", *options), LOOPBACK)

    async def __aenter__(self) -> Self:
        self.launch()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process is not None:
            await asyncio.to_thread(self.kill)

    async def delivers(self, receiver: RecordingReceiver, count: int) -> None:
        """Wait until this number of deliveries came; fail if it ends before."""
        async with asyncio.timeout(WITHIN_S):
            while len(receiver.requests) < count:
                assert not self.has_ended, f"it ended before {count} deliveries came: {self.log()}"
                await asyncio.sleep(0.01)

    async def ended(self) -> tuple[int, Any, str]:
        """The exit code, what it printed as JSON, and what it wrote to stderr."""
        code, out = await asyncio.to_thread(self.finish, WITHIN_S)
        return code, json.loads(out) if out.strip() else None, self.log()


async def jobs_over(database: SparkDatabase, receiver: RecordingReceiver, keys: Sequence[str]) -> list[str]:
    """Jobs that are over, one for each key, of a subscription at the receiver."""

    def prepare() -> list[str]:
        rig = ReplayRig(database)
        job_ids = rig.publish(keys, rig.subscribe(f"{receiver.url}/hook"))
        rig.end(job_ids)
        return job_ids

    return await asyncio.to_thread(prepare)


def assert_in_order(came: list[str], copies: list[str], groups: int, repeats: int) -> None:
    """All came; those of a group, which are every so many-th, in order the first time, and few of them again."""
    assert set(came) == set(copies)
    for group in range(groups):
        wanted = copies[group::groups]
        of_group = [name for name in came if name in set(wanted)]
        assert list(dict.fromkeys(of_group)) == wanted
        assert len(of_group) <= len(wanted) + repeats
