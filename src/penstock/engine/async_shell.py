"""Drives a ledger from asyncio: group commit, waiting receivers, one timer for everything that is timed.

The operations of all callers gather in the ledger's journal and share the next commit; a caller is answered after the
commit that carries its operation. Commits to a local disk are written on the loop, since handing them to the writer
thread and back costs more than they do, and flushed beside it; large ones, and those of a database server, are the
thread's.

Receivers that wait for a message: woken one at a time, in the order they came.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from penstock.domain.errors import PenstockError
from penstock.domain.limits import KIB, MINUTE_MS
from penstock.edge.clock import Clock
from penstock.edge.pause import pause
from penstock.engine.entry import Entry
from penstock.engine.errors import QueueClosed, StoreFailed
from penstock.engine.flush import Flushing, Gathering
from penstock.engine.journal import Flight
from penstock.engine.ledger import Ledger
from penstock.engine.pending import Pending
from penstock.engine.stored_queue import StoredQueue

T = TypeVar("T")


class Waiters:
    """A line of futures; waiting costs one future and one timer, and no polling.

    `ready` tells whether a receive may find something; `wake_one` is what the queues call when something arrives.
    """

    __slots__ = ("_line", "_ready", "closed")

    def __init__(self, ready: Callable[[], bool]) -> None:
        self._line: deque[asyncio.Future[None]] = deque()
        self._ready = ready
        self.closed = False

    def __len__(self) -> int:
        return len(self._line)

    async def receive(self, lease: Callable[[], Awaitable[list[T]]], wait_s: float) -> list[T]:
        """What `lease` gives; while it gives nothing, wait up to `wait_s` for an arrival and ask again."""
        entries = await lease()
        if entries or wait_s <= 0:
            return entries
        woken = False
        try:
            async with asyncio.timeout(wait_s):
                while not entries and not self.closed:
                    if not await self._turn(first=woken):
                        break
                    woken = True
                    entries = await lease()
        except TimeoutError:
            pass
        finally:
            # Whoever was woken and took nothing, or left something, passes the call on.
            if self._line and self._ready():
                self.wake_one()
        return entries

    def wake_one(self) -> None:
        """Wake the one who has waited longest."""
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return

    def close(self) -> None:
        """Answer everybody with nothing, now and from now on."""
        self.closed = True
        while self._line:
            self.wake_one()

    async def _turn(self, *, first: bool) -> bool:
        """Wait at the end of the line or, when called for nothing before, at its front; False when it was closed."""
        place = asyncio.get_running_loop().create_future()
        if first:
            self._line.appendleft(place)
        else:
            self._line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.done() or place.cancelled():
                self._leave(place)
            raise
        return not self.closed

    def _leave(self, place: "asyncio.Future[None]") -> None:
        if place in self._line:
            self._line.remove(place)


log = logging.getLogger(__name__)

# From here on, what the loop does meanwhile is worth the way to the thread and back.
_LARGE_BYTES = 256 * KIB
# Enough for what a stop finds and what follows from it; callers that go on meanwhile are refused.
_LAST_COMMITS = 8


class AsyncShell:
    """Used from one event loop; `close` answers everybody and finishes every write."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self.ledger = ledger
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._writer = ThreadPoolExecutor(1, "penstock-writer")
        self._reader = ThreadPoolExecutor(1, "penstock-reader")
        self._local = ledger.store.local
        flush = ledger.store.flush
        self._flushing = None if flush is None else Flushing(flush, self._writer)
        self._gathering = Gathering()
        self._committing: asyncio.Task[None] | None = None
        self._paging: dict[int, asyncio.Task[None]] = {}
        self._waiters: dict[int, Waiters] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._sweeper = self._loop.call_later(MINUTE_MS / 1000, self._sweep)
        self._closed = False
        self._refused: str | None = None
        """Why the latest commit was refused; None when it was not."""

    # Commits

    async def commit(self, pending: Pending) -> None:
        """Wait until an operation is durable; raises what went wrong with it."""
        if not pending.done and not self._closed:
            done = self._loop.create_future()
            self.when_done(pending, partial(_set_done, done))
            await done
        self.check(pending)

    def when_done(self, pending: Pending, then: Callable[[], None]) -> None:
        """Call `then` once an operation is durable or refused, which `check` tells; at once when it is done."""
        if pending.done or self._closed:
            then()
            return
        pending.on_done = then
        if self._committing is None:
            self.kick()

    @property
    def last_failure(self) -> str | None:
        """Why the latest commit was refused; None when it was not, or was for a disk that has room again."""
        room = self.ledger.store.room
        if self._refused is not None and room is not None and room.lacks:
            # Who sends no work to a part that is not ready would wait for ever for a commit to succeed.
            return room.trouble()
        return self._refused

    def check(self, pending: Pending) -> None:
        """Raise what went wrong with an operation that is done."""
        if self._closed and not (pending.done and self.ledger.store.durable):
            raise _shutting_down()
        pending.result()

    def kick(self) -> None:
        """See to it that what has gathered is committed, and that the timer is right."""
        if self._committing is None and self.ledger.has_unwritten() and not self._closed:
            self._committing = self._loop.create_task(self._commit_one())
        self._arm()

    async def _commit_one(self) -> None:
        if self._local:
            while not self._gathering.is_complete(self.ledger.waiting_callers):
                await pause(0)
        flight = self.ledger.take_flight()
        assert flight is not None
        try:
            if self._local and flight.batch.size_bytes < _LARGE_BYTES:
                shares = self.ledger.store.apply(flight.batch)
            else:
                shares = await self._loop.run_in_executor(self._writer, self.ledger.store.apply, flight.batch)
            if self._flushing is not None:
                await self._flushing.flush()
        except PenstockError as error:
            self._refuse(flight, error)
        except Exception as error:
            log.exception("the store failed in a way it does not explain")
            self._refuse(flight, StoreFailed(f"the store failed: {error}"))
        else:
            self._refused = None
            self.ledger.committed(flight, shares, self._clock.now_ms())
        finally:
            self._committing = None
        # The callers just answered run before this call, so their next operations share the next commit.
        self._loop.call_soon(self.kick)

    def _refuse(self, flight: Flight, error: PenstockError) -> None:
        self._refused = error.message
        log.error("a commit was refused and its changes were taken back: %s", error)
        self.ledger.failed(flight, error, self._clock.now_ms())

    # Receiving

    async def receive(
        self,
        queue: StoredQueue,
        max_messages: int,
        *,
        wait_s: float = 0.0,
        max_bytes: int | None = None,
        lease_ms: int | None = None,
    ) -> list[Entry]:
        """Lease messages; with none at hand, wait up to `wait_s` for one to arrive."""
        if self._closed:
            raise _shutting_down()
        lease = partial(self._lease, queue, max_messages, max_bytes, lease_ms)
        return await self._waiters_of(queue).receive(lease, wait_s)

    def lease_now(
        self,
        queue: StoredQueue,
        max_messages: int,
        *,
        max_bytes: int | None = None,
        lease_ms: int | None = None,
        first_always: bool = True,
    ) -> list[Entry]:
        """Lease what is in memory; more of a deep backlog is being read when this returns."""
        entries = self.ledger.receive(
            queue,
            self._clock.now_ms(),
            max_messages,
            max_bytes=max_bytes,
            lease_ms=lease_ms,
            first_always=first_always,
        )
        self.kick()
        if queue.wants_page() and not self._closed:
            self._page(queue)
        return entries

    async def page_in(self, queue: StoredQueue) -> bool:
        """Read the next page of a queue when its window runs out; False when there was nothing to read."""
        if not queue.wants_page() or self._closed:
            return False
        before = queue.next_stored_seq
        await asyncio.shield(self._page(queue))
        return queue.next_stored_seq != before

    async def peek(self, queue: StoredQueue, after_seq: int, limit: int) -> list[Entry]:
        """The next messages after a sequence number, in order, in memory or in the store; nothing is changed."""
        entries = queue.engine.peek(after_seq, limit)
        if len(entries) < limit and queue.next_stored_seq is not None:
            peek_stored = partial(self.ledger.peek_stored, queue, after_seq, limit - len(entries))
            entries += await self._loop.run_in_executor(self._reader, peek_stored)
        return entries

    async def _lease(
        self, queue: StoredQueue, max_messages: int, max_bytes: int | None, lease_ms: int | None
    ) -> list[Entry]:
        while True:
            entries = self.lease_now(queue, max_messages, max_bytes=max_bytes, lease_ms=lease_ms)
            if entries or not queue.wants_page():
                return entries
            if not await self.page_in(queue):
                # Something may have come back during the read, when nobody stood in line to be told.
                return self.lease_now(queue, max_messages, max_bytes=max_bytes, lease_ms=lease_ms)

    def _page(self, queue: StoredQueue) -> "asyncio.Task[None]":
        """Read a page in the reader thread; callers of the same queue share one read."""
        task = self._paging.get(queue.id)
        if task is None:
            task = self._paging[queue.id] = self._loop.create_task(self._read_page(queue))
        return task

    async def _read_page(self, queue: StoredQueue) -> None:
        try:
            page = await self._loop.run_in_executor(self._reader, self.ledger.read_page, queue)
            if page is not None:
                self.ledger.install_page(queue, page, self._clock.now_ms())
                self.kick()
        except PenstockError as error:
            log.error("cannot read waiting messages: %s", error, extra={"queue": queue.name})
        finally:
            del self._paging[queue.id]

    def _waiters_of(self, queue: StoredQueue) -> Waiters:
        waiters = self._waiters.get(queue.id)
        if waiters is None:
            waiters = self._waiters[queue.id] = Waiters(queue.engine.has_ready)
            waiters.closed = self._closed
            queue.on_ready = waiters.wake_one
            queue.on_dropped = partial(self._dismiss, queue.id)
        return waiters

    def _dismiss(self, queue_id: int) -> None:
        self._waiters.pop(queue_id).close()

    # Time

    def tick(self) -> None:
        """Carry out what is due by the clock."""
        self.ledger.run_due(self._clock.now_ms())
        self.kick()

    def _arm(self) -> None:
        due_ms = self.ledger.next_due_ms()
        if due_ms is None or self._closed or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_s = max(0, due_ms - self._clock.now_ms()) / 1000
        self._timer = self._loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.tick()

    def _sweep(self) -> None:
        self.ledger.sweep(self._clock.now_ms())
        self.kick()
        self._sweeper = self._loop.call_later(MINUTE_MS / 1000, self._sweep)

    def answer_waiters(self) -> None:
        """Answer waiting receivers with nothing, now and from now on; what is at hand is still leased."""
        for waiters in self._waiters.values():
            waiters.close()

    def answer_waiters_of(self, queue: StoredQueue) -> None:
        """Answer the receivers that wait for one queue with nothing; later ones wait again."""
        if queue.id in self._waiters:
            self._dismiss(queue.id)
            queue.on_ready = queue.on_dropped = None

    async def close(self) -> None:
        """Answer waiting receivers with nothing, finish every write, and close the store."""
        self._sweeper.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self.ledger.note_leases()
        for _ in range(_LAST_COMMITS):
            self.kick()
            if self._committing is not None:
                await asyncio.wait([self._committing])
        self._closed = True
        if self._committing is not None:
            await asyncio.wait([self._committing])
        if (flight := self.ledger.take_flight()) is not None:
            self.ledger.failed(flight, _shutting_down(), self._clock.now_ms())
        for waiters in self._waiters.values():
            waiters.close()
        if self._paging:
            await asyncio.wait(list(self._paging.values()))
        self._writer.shutdown()
        self._reader.shutdown()
        if self._flushing is not None:
            self._flushing.close()
        self.ledger.store.close()


def _shutting_down() -> QueueClosed:
    return QueueClosed("Penstock is shutting down; try again after the restart")


def _set_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
