"""Run parts of Penstock as child processes: start them in order, restart those that die, stop them in reverse order."""

import asyncio
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.domain.errors import Unavailable
from penstock.edge.pause import pause
from penstock.http.server import CHOOSE_ANOTHER

READY = "listening on "
START_S = 60.0
STOP_S = 45.0
# A part that keeps dying is restarted after longer and longer delays.
RESTART_S = (0.5, 2.0, 5.0, 15.0, 30.0)
STEADY_S = 60.0
_KEPT_LINES = 20


def _nothing(_: Mapping[str, str]) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class SupervisedPart:
    """A child process: the arguments of `penstock`, given the addresses of the parts before it.

    `secrets` is environment too, since every user of the machine can read arguments. `port_from` says how its port is
    chosen, for the error message if the port is not available.
    """

    name: str
    purpose: str
    arguments: Callable[[Mapping[str, str]], Sequence[str]]
    environment: Mapping[str, str]
    start_s: float = START_S
    secrets: Callable[[Mapping[str, str]], Mapping[str, str]] = _nothing
    port_from: str = ""


class Child:
    """The running process of a part."""

    def __init__(self, part: SupervisedPart, addresses: Mapping[str, str], report: Callable[[str], None]) -> None:
        self.part = part
        self._arguments = part.arguments(addresses)
        self._environment = {**part.environment, **part.secrets(addresses)}
        self._report = report
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._process: asyncio.subprocess.Process
        self._reading: asyncio.Task[None]

    async def start(self) -> str:
        """Start the process, wait until it is ready and return its address; Unavailable with its error if it ends."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "penstock.ops.child",
            *self._arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.PIPE,
            env=self._environment,
            # In a session of its own: Ctrl-C reaches only the supervisor, which stops the parts in order.
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read_log())
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(self.part.start_s):
                while line := (await self._process.stdout.readline()).decode(errors="replace"):
                    if line.startswith(READY):
                        return line.removeprefix(READY).strip()
        except TimeoutError:
            self._process.kill()
        await self.ended()
        reason = self._last_lines[-1] if self._last_lines else f"it ended with code {self._process.returncode}"
        raise Unavailable(f"{self.part.name} did not start: {self._advised(reason.removeprefix('error: '))}")

    def _advised(self, reason: str) -> str:
        """Add to the reason how the port is chosen, which the part itself does not know."""
        advice = f"{CHOOSE_ANOTHER} with {self.part.port_from}"
        return reason.replace(CHOOSE_ANOTHER, advice) if self.part.port_from else reason

    async def _read_log(self) -> None:
        assert self._process.stderr is not None
        while line := (await self._process.stderr.readline()).decode(errors="replace").rstrip():
            self._last_lines.append(line)
            self._report(f"{self.part.name}: {line}")

    async def ended(self) -> int:
        """Wait for the process to end and return its exit code."""
        code = await self._process.wait()
        await self._reading
        return code

    async def stop(self) -> None:
        """Ask the process to stop; kill it if that takes too long."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await self.ended()
        except TimeoutError:
            self._report(f"{self.part.name}: does not stop; killing it")
            self._process.kill()
            await self.ended()


class Supervisor:
    """Keeps parts running. `async with` starts and stops them all."""

    def __init__(self, parts: Sequence[SupervisedPart], report: Callable[[str], None]) -> None:
        self._parts = parts
        self._report = report
        self._children: dict[str, Child] = {}
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

    async def _start(self, part: SupervisedPart) -> None:
        child = Child(part, self.addresses, self._report)
        self._children[part.name] = child
        self.addresses[part.name] = await child.start()
        self._report(f"{part.name} is ready at {self.addresses[part.name]}")

    async def _watch(self, part: SupervisedPart) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            started_s = loop.time()
            code = await self._children[part.name].ended()
            failures = 0 if loop.time() - started_s > STEADY_S else failures + 1
            wait_s = RESTART_S[min(failures, len(RESTART_S) - 1)]
            self._report(f"{part.name} ended with code {code}; starting it again in {wait_s:g} s")
            await pause(wait_s)
            try:
                await self._start(part)
            except Unavailable as error:
                self._report(error.message)

    async def _stop_all(self) -> None:
        for child in reversed(self._children.values()):
            await child.stop()
        self._children.clear()
