"""A queue in an SQLite file, shared by the processes of one machine: no broker to run.

A commit of this process wakes its waiting consumers at once. Those of other processes see it when they next look at
the file's change counter: after 1 ms at first, then ever more seldom, 100 ms at most.

Wakes the consumers of an embedded queue that live in this process, on whichever event loop.

The publisher's end of an embedded queue: publications of one moment share a commit.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from penstock.domain.errors import Unavailable
from penstock.edge.clock import Clock, SystemClock
from penstock.queues.embedded.table import Ack, Command, EmbeddedTable, Extend, GiveBack, Handle, Taken
from penstock.queues.embedded.worker import EmbeddedWorker
from penstock.queues.gather import Gatherer
from penstock.queues.port import Confirmation, Publication, Received
from penstock.queues.uri import EmbeddedUri

_listeners: dict[EmbeddedUri, set["EmbeddedSignal"]] = {}


class EmbeddedSignal:
    """Rung when something may have come."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung.set)

    async def rung(self, within_s: float) -> bool:
        """Whether it was rung since the last call, at the latest after a while."""
        try:
            async with asyncio.timeout(within_s):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


@contextmanager
def listening(uri: EmbeddedUri) -> Iterator[EmbeddedSignal]:
    """A bell of this queue."""
    bell = EmbeddedSignal()
    _listeners.setdefault(uri, set()).add(bell)
    try:
        yield bell
    finally:
        bells = _listeners[uri]
        bells.discard(bell)
        if not bells:
            del _listeners[uri]


def ring(uri: EmbeddedUri) -> None:
    """Something has come, or has become free."""
    for bell in tuple(_listeners.get(uri, ())):
        bell.ring()


POLL_S = 20.0
_FIRST_LOOK_S = 0.001
_LAST_LOOK_S = 0.1
_COMMIT_AT_MOST = 1000


class EmbeddedSource:
    """The consumer's end of an embedded queue."""

    ordered = True
    exclusive = False

    def __init__(
        self, name: str, uri: EmbeddedUri, *, visibility_s: float, most: int = 10, clock: Clock | None = None
    ) -> None:
        self.name = name
        self.address = uri.shown
        self.visibility_s: float | None = visibility_s
        self._uri = uri
        self._lease_ms = round(visibility_s * 1000)
        self._most = most
        self._clock = clock or SystemClock()
        self._worker = EmbeddedWorker(uri)
        self._settling: Gatherer[Command] = Gatherer(self._settle, most=_COMMIT_AT_MOST, at_once=1)
        self._held: dict[str, str] = {}
        self._taking: set[asyncio.Future[Taken]] = set()

    async def open(self) -> None:
        """Open the file, and make it if it is not there."""
        await self._worker.open()

    async def receive(self) -> list[Received]:
        """The next messages, at once if there are any, else when some come or the poll ends."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + POLL_S
        with listening(self._uri) as bell:
            while True:
                taken = await self._take()
                if taken.messages or loop.time() >= ends_s:
                    return taken.messages
                await self._wait(bell, taken, ends_s)

    def ack(self, message: Received) -> Confirmation:
        """Remove a message for good."""
        self._held.pop(message.broker_id, None)
        return self._settling.add(Ack(Handle.parse(message.handle)))

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """Give a message back, to be handed out again after the delay."""
        self._held.pop(message.broker_id, None)
        return self._settling.add(GiveBack(Handle.parse(message.handle), delay_s * 1000))

    async def extend(self, messages: Sequence[Received]) -> None:
        """Keep the messages ours for another `visibility_s`."""
        if messages:
            commands = [Extend(Handle.parse(message.handle), self._lease_ms) for message in messages]
            await asyncio.gather(*map(self._settling.add, commands))

    async def close(self) -> None:
        """Finish what was acked and nacked, give everything else back, and let go of the file."""
        if self._taking:
            await asyncio.wait(self._taking)
        for handle in self._held.values():
            self._settling.add(GiveBack(Handle.parse(handle), 0))
        self._held.clear()
        await self._settling.drain()
        await self._worker.close()

    async def _take(self) -> Taken:
        now_ms = self._clock.now_ms()
        taking = self._worker.ask(lambda table: table.receive(self._most, self._lease_ms, now_ms))
        self._taking.add(taking)
        taking.add_done_callback(self._taken)
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._give_back)
            raise

    def _taken(self, taking: "asyncio.Future[Taken]") -> None:
        self._taking.discard(taking)
        if not taking.cancelled() and taking.exception() is None:
            self._held.update((message.broker_id, message.handle) for message in taking.result().messages)

    def _give_back(self, taking: "asyncio.Future[Taken]") -> None:
        """What was leased for a receive that nobody waits for any more."""
        if not taking.cancelled() and taking.exception() is None:
            for message in taking.result().messages:
                if self._held.get(message.broker_id) == message.handle:
                    self.nack(message)

    async def _wait(self, bell: EmbeddedSignal, taken: Taken, ends_s: float) -> None:
        """Until the bell rings, another process has written, a message is due, or the poll ends."""
        loop = asyncio.get_running_loop()
        if taken.next_due_ms is not None:
            due_s = loop.time() + (taken.next_due_ms - self._clock.now_ms()) / 1000
            ends_s = min(ends_s, due_s)
        look_s = _FIRST_LOOK_S
        while (left_s := ends_s - loop.time()) > 0:
            if await bell.rung(min(left_s, look_s)):
                return
            if await self._worker.ask(EmbeddedTable.version) != taken.version:
                return
            look_s = min(2 * look_s, _LAST_LOOK_S)

    async def _settle(self, commands: Sequence[Command]) -> Sequence[None]:
        now_ms = self._clock.now_ms()
        await self._worker.ask(lambda table: table.settle(commands, now_ms))
        ring(self._uri)
        return [None] * len(commands)


_CALLS_A_COMMIT = 100


class EmbeddedPublisher:
    """Puts messages into the table of a file; either all of a call are in, or none."""

    def __init__(self, uri: EmbeddedUri, *, clock: Clock | None = None) -> None:
        self._uri = uri
        self._clock = clock or SystemClock()
        self._worker = EmbeddedWorker(uri)
        self._calls: Gatherer[Sequence[Publication]] = Gatherer(self._commit, most=_CALLS_A_COMMIT, at_once=1)

    async def open(self) -> None:
        """Open the file, and make it if it is not there."""
        await self._worker.open()

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        """Put messages in, in order; per message None, or why it is not in."""
        try:
            await self._calls.add(publications)
        except Unavailable as error:
            return [error] * len(publications)
        return [None] * len(publications)

    async def close(self) -> None:
        """Finish what was given, and let go of the file."""
        await self._calls.drain()
        await self._worker.close()

    async def _commit(self, calls: Sequence[Sequence[Publication]]) -> Sequence[None]:
        now_ms = self._clock.now_ms()
        publications = list(chain.from_iterable(calls))
        await self._worker.ask(lambda table: table.publish(publications, now_ms))
        ring(self._uri)
        return [None] * len(calls)
