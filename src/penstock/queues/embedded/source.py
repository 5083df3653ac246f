"""The source and the publisher of a queue in an SQLite file, shared by the processes of one machine.

A commit wakes the waiting consumers of the same process immediately. Those of other processes check the file's change
counter: after 1 ms at first, then at growing intervals of up to 100 ms.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from penstock.domain.errors import Unavailable
from penstock.edge.clock import Clock, SystemClock
from penstock.queues.batcher import Batcher
from penstock.queues.embedded.table import Ack, Command, EmbeddedTable, Extend, Handle, Nack, ReceiveResult
from penstock.queues.embedded.worker import EmbeddedWorker
from penstock.queues.port import Confirmation, Publication, Received
from penstock.queues.uri import EmbeddedUri

POLL_S = 20.0
_FIRST_CHECK_S = 0.001
_LAST_CHECK_S = 0.1
_MAX_COMMANDS_PER_COMMIT = 1000
_MAX_CALLS_PER_COMMIT = 100


_signals: dict[EmbeddedUri, set["WakeSignal"]] = {}


class EmbeddedSource:
    """A source of an embedded queue."""

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
        self._settling: Batcher[Command] = Batcher(self._settle, max_batch=_MAX_COMMANDS_PER_COMMIT, max_running=1)
        self._held: dict[str, str] = {}
        self._taking: set[asyncio.Future[ReceiveResult]] = set()

    async def open(self) -> None:
        """Open the file; create it if it is missing."""
        await self._worker.open()

    async def receive(self) -> list[Received]:
        """Return the next messages; wait for some until the poll ends."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + POLL_S
        with signal_for(self._uri) as signal:
            while True:
                taken = await self._take()
                if taken.messages or loop.time() >= ends_s:
                    return taken.messages
                await self._wait(signal, taken, ends_s)

    def ack(self, message: Received) -> Confirmation:
        """Remove a message for good."""
        self._held.pop(message.broker_id, None)
        return self._settling.add(Ack(Handle.parse(message.handle)))

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """Return a message to the queue, to be redelivered after the delay."""
        self._held.pop(message.broker_id, None)
        return self._settling.add(Nack(Handle.parse(message.handle), delay_s * 1000))

    async def extend(self, messages: Sequence[Received]) -> None:
        """Extend the leases of messages by `visibility_s`."""
        if messages:
            commands = [Extend(Handle.parse(message.handle), self._lease_ms) for message in messages]
            await asyncio.gather(*map(self._settling.add, commands))

    async def close(self) -> None:
        """Finish acks and nacks, return the other messages to the queue, and close the file."""
        if self._taking:
            await asyncio.wait(self._taking)
        for handle in self._held.values():
            self._settling.add(Nack(Handle.parse(handle), 0))
        self._held.clear()
        await self._settling.drain()
        await self._worker.close()

    async def _take(self) -> ReceiveResult:
        now_ms, now_s = self._clock.now_ms(), asyncio.get_running_loop().time()
        taking = self._worker.run(lambda table: table.receive(self._most, self._lease_ms, now_ms))
        self._taking.add(taking)
        taking.add_done_callback(self._taken)
        try:
            taken = await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._return_messages)
            raise
        for message in taken.messages:
            message.leased_s = now_s
        return taken

    def _taken(self, taking: "asyncio.Future[ReceiveResult]") -> None:
        self._taking.discard(taking)
        if not taking.cancelled() and taking.exception() is None:
            self._held.update((message.broker_id, message.handle) for message in taking.result().messages)

    def _return_messages(self, taking: "asyncio.Future[ReceiveResult]") -> None:
        """Return the messages of a cancelled receive to the queue."""
        if not taking.cancelled() and taking.exception() is None:
            for message in taking.result().messages:
                if self._held.get(message.broker_id) == message.handle:
                    self.nack(message)

    async def _wait(self, signal: "WakeSignal", taken: ReceiveResult, ends_s: float) -> None:
        """Wait until this or another process has written, a message is due, or the poll ends."""
        loop = asyncio.get_running_loop()
        if taken.next_due_ms is not None:
            due_s = loop.time() + (taken.next_due_ms - self._clock.now_ms()) / 1000
            ends_s = min(ends_s, due_s)
        check_s = _FIRST_CHECK_S
        while (left_s := ends_s - loop.time()) > 0:
            if await signal.wait(min(left_s, check_s)):
                return
            if await self._worker.run(EmbeddedTable.version) != taken.version:
                return
            check_s = min(2 * check_s, _LAST_CHECK_S)

    async def _settle(self, commands: Sequence[Command]) -> Sequence[None]:
        now_ms = self._clock.now_ms()
        await self._worker.run(lambda table: table.settle(commands, now_ms))
        notify(self._uri)
        return [None] * len(commands)


class EmbeddedPublisher:
    """A publisher to an embedded queue; calls made at the same time share a commit."""

    def __init__(self, uri: EmbeddedUri, *, clock: Clock | None = None) -> None:
        self._uri = uri
        self._clock = clock or SystemClock()
        self._worker = EmbeddedWorker(uri)
        self._calls: Batcher[Sequence[Publication]] = Batcher(
            self._commit, max_batch=_MAX_CALLS_PER_COMMIT, max_running=1
        )

    async def open(self) -> None:
        """Open the file; create it if it is missing."""
        await self._worker.open()

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        """Publish messages in order, all or none; return per message None, or the error."""
        try:
            await self._calls.add(publications)
        except Unavailable as error:
            return [error] * len(publications)
        return [None] * len(publications)

    async def settled_before_ms(self, pool: str | None = None) -> int:
        """Return a moment before which nothing was published that the queue still has."""
        asked_ms = self._clock.now_ms()
        oldest_ms = await self._worker.run(EmbeddedTable.oldest_sent_ms)
        return asked_ms if oldest_ms is None else min(oldest_ms, asked_ms)

    async def close(self) -> None:
        """Finish pending publications, and close the file."""
        await self._calls.drain()
        await self._worker.close()

    async def _commit(self, calls: Sequence[Sequence[Publication]]) -> Sequence[None]:
        now_ms = self._clock.now_ms()
        publications = list(chain.from_iterable(calls))
        await self._worker.run(lambda table: table.publish(publications, now_ms))
        notify(self._uri)
        return [None] * len(calls)


class WakeSignal:
    """Wakes a consumer of this process, from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the consumer."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, within_s: float) -> bool:
        """Wait for the signal; return False if it was not set in time."""
        try:
            async with asyncio.timeout(within_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


@contextmanager
def signal_for(uri: EmbeddedUri) -> Iterator[WakeSignal]:
    """Provide a signal that is set when the queue changes."""
    signal = WakeSignal()
    _signals.setdefault(uri, set()).add(signal)
    try:
        yield signal
    finally:
        signals = _signals[uri]
        signals.discard(signal)
        if not signals:
            del _signals[uri]


def notify(uri: EmbeddedUri) -> None:
    """Set the signals of a queue, as a message may have become available."""
    for signal in tuple(_signals.get(uri, ())):
        signal.set()
