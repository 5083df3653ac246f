"""Keep the parts of Penstock running: start them in order, restart those that die or hang, stop them in reverse."""

import asyncio
from collections.abc import Callable, Sequence

from penstock.domain.errors import PenstockError, Unavailable
from penstock.edge.pause import pause
from penstock.ops.part_process import PartProcess, SupervisedPart

# A part that keeps dying is restarted after longer and longer delays.
RESTART_S = (0.5, 2.0, 5.0, 15.0, 30.0)
STEADY_S = 60.0
PROBE_EVERY_S = 5.0
# A part hangs after this many unanswered probes, a minute in all: a busy machine must not cause restarts.
MISSED_PROBES = 4


class Supervisor:
    """Keeps parts running. `async with` starts and stops them all."""

    def __init__(self, parts: Sequence[SupervisedPart], report: Callable[[str], None]) -> None:
        self._parts = parts
        self._report = report
        self._processes: dict[str, PartProcess] = {}
        self._watches: list[asyncio.Task[None]] = []
        self.addresses: dict[str, str] = {}

    async def __aenter__(self) -> "Supervisor":
        """Start the parts one after another; if one does not start, stop all of them and raise Unavailable."""
        try:
            for part in self._parts:
                await self._start(part)
        except BaseException:
            await self._stop_all()
            raise
        self._watches = [asyncio.create_task(self._watch(part)) for part in self._parts]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the parts in reverse order, so that each has what it needs until it ends."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        await self._stop_all()

    async def failure(self) -> None:
        """Wait until a part can no longer be watched, which is an error of the supervisor, and raise it."""
        await asyncio.gather(*self._watches)

    def kill(self) -> None:
        """End all parts without waiting for them."""
        for process in self._processes.values():
            process.kill()

    def abandon(self) -> None:
        """End all parts as a power cut would, and do not start them again."""
        for watch in self._watches:
            watch.cancel()
        self.kill()

    async def _start(self, part: SupervisedPart) -> None:
        process = self._processes[part.name] = PartProcess(part, self._report)
        self.addresses[part.name] = await process.start(self.addresses)
        self._report(f"{part.name} is ready at {self.addresses[part.name]}")

    async def _watch(self, part: SupervisedPart) -> None:
        try:
            await self._keep_running(part)
        except Exception as error:
            raise Unavailable(
                f"{part.name} can no longer be supervised: {error!r}; start `penstock up` again"
            ) from error

    async def _keep_running(self, part: SupervisedPart) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            started_s = loop.time()
            ended = await self._end_of(self._processes[part.name])
            failures = 0 if loop.time() - started_s > STEADY_S else failures + 1
            wait_s = RESTART_S[min(failures, len(RESTART_S) - 1)]
            self._report(f"{part.name} {ended}; starting it again in {wait_s:g} s")
            await pause(wait_s)
            try:
                await self._start(part)
            except (PenstockError, OSError) as error:
                self._report(str(error))

    async def _end_of(self, process: PartProcess) -> str:
        """Wait until a process ends, and end it if it hangs."""
        if not process.has_started:
            return "has no process"
        async with asyncio.TaskGroup() as group:
            probing = group.create_task(self._kill_if_hung(process))
            code = await process.ended()
            probing.cancel()
        return f"ended with code {code}"

    async def _kill_if_hung(self, process: PartProcess) -> None:
        missed = 0
        while missed < MISSED_PROBES:
            await pause(PROBE_EVERY_S)
            missed = 0 if await process.is_alive() else missed + 1
        self._report(f"{process.part.name} does not answer; killing it")
        process.kill()

    async def _stop_all(self) -> None:
        for process in reversed(self._processes.values()):
            await process.stop()
        self._processes.clear()
