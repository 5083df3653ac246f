"""Endpoints that misbehave on purpose, and a mediator that talks to them over real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network

from penstock.delivery.breakers import Breakers
from penstock.delivery.egress import EgressGuard, Lookup, system_lookup
from penstock.delivery.http.client import HttpClient
from penstock.delivery.http.settings import DeliverySettings
from penstock.domain.addresses import Network
from penstock.domain.outcome import MediationOutcome
from penstock.domain.pointer import MessagePointer
from penstock.router.pools.mediator import HttpMediator
from penstock.testing.clock import VirtualClock

LOOPBACK: tuple[Network, ...] = (ip_network("127.0.0.0/8"),)

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    """A TCP server whose every connection is talked to by a coroutine."""

    def __init__(self, talk: Talk, tls: ssl.SSLContext | None = None) -> None:
        self._talk = talk
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self.accepted = 0
        self.open = 0
        self.port = 0

    @asynccontextmanager
    async def serving(self) -> "AsyncIterator[RawServer]":
        """Listen while in the block."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until_open(self, count: int) -> None:
        """Wait until this many connections are open."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: self.open == count)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._count(1)
        try:
            await self._talk(reader, writer)
            await reader.read()  # until the client hangs up, unless the server did
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            await self._count(-1)

    async def _count(self, change: int) -> None:
        async with self._changed:
            self.open += change
            self._changed.notify_all()


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """One request: its first line, its headers and its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {line.split(": ", 1)[0].lower(): line.split(": ", 1)[1] for line in head[1:] if line}
    return head[0], headers, await reader.readexactly(int(headers["content-length"]))


def answers(*pieces: bytes, close: bool = False) -> Talk:
    """Answer every request of a connection with these bytes; with `close` hang up after the first."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if close:
                writer.close()
                return

    return talk


class Rig:
    """A mediator and what it did."""

    def __init__(self, client: HttpClient, breakers: Breakers, clock: VirtualClock, settings: DeliverySettings) -> None:
        self.clock = clock
        self.breakers = breakers
        self.client = client
        self.warnings: list[tuple[str, str, str, str]] = []
        self.mediator = HttpMediator(client, breakers, clock, lambda *warning: self.warnings.append(warning), settings)

    async def deliver(self, url: str, message_id: str = "m1", token: str | None = None) -> MediationOutcome:
        """One attempt."""
        async with asyncio.timeout(60):
            return await self.mediator.attempt(MessagePointer(message_id, url, auth_token=token), 1)


@asynccontextmanager
async def mediator_rig(
    settings: DeliverySettings | None = None,
    allowed: tuple[Network, ...] = LOOPBACK,
    lookup: Lookup = system_lookup,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Rig]:
    """A mediator that may reach loopback."""
    settings = settings if settings is not None else DeliverySettings()
    clock = VirtualClock()
    guard = EgressGuard(allowed, lookup)
    async with HttpClient(guard, settings, tls) as client:
        yield Rig(client, Breakers(clock), clock, settings)
    guard.close()
