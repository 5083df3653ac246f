"""`penstock pipeline replay` as a process of its own, for tests."""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.spark.database import SparkDatabase
from penstock.testing.receiver import RecordingReceiver
from tests.rigs.penstock_process import PENSTOCK, descendants
from tests.rigs.replay import ReplayRig

WITHIN_S = 400


class ReplayCommand:
    """One run of the command, over at the end of its `async with` block with all that it started."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._directory = directory
        self._options = options
        self.process: asyncio.subprocess.Process

    async def __aenter__(self) -> "ReplayCommand":
        """Start it; deliveries may go to this machine."""
        self.process = await asyncio.create_subprocess_exec(
            str(PENSTOCK),
            "pipeline",
            "replay",
            *self._options,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._directory,
            env={**os.environ, "PENSTOCK_EGRESS__ALLOW": "127.0.0.0/8"},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.returncode is None:
            await self.kill()

    async def kill(self) -> None:
        """A power cut: the driver, its JVM and the Python in it, all at once."""
        pid = self.process.pid
        for doomed in [pid, *await asyncio.to_thread(descendants, pid)]:
            with suppress(ProcessLookupError):
                os.kill(doomed, signal.SIGKILL)
        await self.process.communicate()

    async def delivers(self, receiver: RecordingReceiver, count: int) -> None:
        """Wait until so many deliveries came; if it ends before, say what it told."""
        enough = asyncio.create_task(receiver.received(count, within_s=WITHIN_S))
        over = asyncio.create_task(self.process.wait())
        await asyncio.wait((enough, over), return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not enough.done():
            enough.cancel()
            raise AssertionError(f"it ended before {count} deliveries came: {await self.ended()}")
        await enough

    async def ended(self) -> tuple[int, Any, str]:
        """The exit code, what it printed as JSON, and what it told beside."""
        async with asyncio.timeout(WITHIN_S):
            out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, json.loads(out) if out.strip() else None, err.decode()


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
