"""A part of Penstock as a child process: start it, read what it prints, ask whether it is alive, stop it."""

import asyncio
import os
import signal
import ssl
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.delivery import (
    AnyAddress,
    ConnectionBroken,
    DeliveryFailed,
    HttpClient,
    head_with,
    own_part_settings,
)
from penstock.domain.errors import Unavailable
from penstock.domain.limits import KIB
from penstock.http.server import CHOOSE_ANOTHER

READY = "listening on "
PROBES = "probes on "
START_S = 60.0
STOP_S = 45.0
PROBE_S = 10.0
MAX_LINE_BYTES = 16 * KIB
# A grandchild may hold the streams open after the part has ended.
_LAST_WORDS_S = 5.0
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


async def lines_of(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield the lines of a stream until it ends, whatever it carries; a long line is cut."""
    kept = b""
    while piece := await stream.read(64 * KIB):
        *ended, rest = piece.split(b"\n")
        for line in ended:
            yield _shown(kept + line)
            kept = b""
        kept = (kept + rest)[: MAX_LINE_BYTES + 1]
    yield _shown(kept)


def _shown(line: bytes) -> str:
    shown = line[:MAX_LINE_BYTES].decode(errors="replace").rstrip()
    return shown if len(line) <= MAX_LINE_BYTES else f"{shown} … (cut)"


def log_line(part: str, line: str) -> str:
    """Return a line of a part's log that names the part: as a field of JSON, else before a text."""
    # Not decoded, since a line may be cut: then it is text.
    if line.startswith("{") and line.endswith("}"):
        return f'{{"part": "{part}", {line[1:]}'
    return f"{part}: {line}"


class PartProcess:
    """The process of a part."""

    def __init__(self, part: SupervisedPart, report: Callable[[str], None]) -> None:
        self.part = part
        self._report = report
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._process: asyncio.subprocess.Process | None = None
        self._reading: list[asyncio.Task[None]] = []
        self._address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._probes = ""

    async def start(self, addresses: Mapping[str, str]) -> str:
        """Start the process, wait until it is ready and return its address; Unavailable with its error if it ends."""
        # In a thread, since arguments may have to be asked of another part.
        arguments = await asyncio.to_thread(self.part.arguments, addresses)
        launching = asyncio.ensure_future(self._launch(arguments, self.part.secrets(addresses)))
        try:
            await asyncio.shield(launching)
        except asyncio.CancelledError:
            await launching  # else the process would be started, and stopped by no one
            raise
        ending = asyncio.ensure_future(self.ended())
        try:
            await asyncio.wait((self._address, ending), timeout=self.part.start_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
        if self._address.done():
            return self._address.result()
        self.kill()
        code = await self.ended()
        reason = self._last_lines[-1] if self._last_lines else f"it ended with code {code}"
        raise Unavailable(f"{self.part.name} did not start: {self._advised(reason.removeprefix('error: '))}")

    @property
    def has_started(self) -> bool:
        """Whether there is, or was, a process."""
        return self._process is not None

    async def ended(self) -> int:
        """Wait for the process to end and return its exit code."""
        assert self._process is not None
        code = await self._process.wait()
        done, late = await asyncio.wait(self._reading, timeout=_LAST_WORDS_S)
        for reading in late:
            reading.cancel()
        for reading in done:
            reading.result()
        return code

    async def is_alive(self) -> bool:
        """Return whether the part answers its liveness probe in time."""
        async with HttpClient(AnyAddress(), own_part_settings(PROBE_S, KIB), _own_tls()) as client:
            try:
                await client.send(head_with(f"{self._probes}/health/live", (), "GET"), b"")
            except ConnectionBroken:
                return True  # a part that hangs does not hang up
            except DeliveryFailed:
                return False
            return True

    async def stop(self) -> None:
        """Ask the process to stop; kill it if that takes too long."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await self.ended()
        except TimeoutError:
            self._report(f"{self.part.name}: does not stop; killing it")
            self.kill()
            await self.ended()

    def kill(self) -> None:
        """End the process and those that it has started."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _launch(self, arguments: Sequence[str], secrets: Mapping[str, str]) -> None:
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "penstock.ops.child",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.PIPE,
            env={**self.part.environment, **secrets},
            # In a session of its own: Ctrl-C reaches only the supervisor, which stops the parts in order.
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        self._reading = [
            asyncio.create_task(self._read(process.stdout, self._take_output)),
            asyncio.create_task(self._read(process.stderr, self._take_log)),
        ]

    async def _read(self, stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
        async for line in lines_of(stream):
            if line:
                take(line)

    def _take_output(self, line: str) -> None:
        if line.startswith(PROBES):
            self._probes = line.removeprefix(PROBES).strip()
        elif line.startswith(READY) and not self._address.done():
            address = line.removeprefix(READY).strip()
            self._probes = self._probes or address
            self._address.set_result(address)
        else:
            self._report(f"{self.part.name}: {line}")

    def _take_log(self, line: str) -> None:
        self._last_lines.append(line)
        self._report(log_line(self.part.name, line))

    def _advised(self, reason: str) -> str:
        """Add to the reason how the port is chosen, which the part itself does not know."""
        advice = f"{CHOOSE_ANOTHER} with {self.part.port_from}"
        return reason.replace(CHOOSE_ANOTHER, advice) if self.part.port_from else reason


def _own_tls() -> ssl.SSLContext:
    """Return a context that accepts any certificate: the question is whether the child answers, at its own address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
