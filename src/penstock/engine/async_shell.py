"""Runs a ledger on asyncio: group commit, waiting receivers, and one timer for all queues.

The operations of all callers gather in the ledger's journal and share the next commit; a caller gets its answer after
the commit that contains its operation. Small commits to a local disk are written on the event loop, because handing
them to the writer thread costs more than the write, and are flushed in the background. Large commits, and those to a
database server, run in the writer thread.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from penstock.domain.errors import PenstockError
from penstock.domain.limits import KIB, MINUTE_MS
from penstock.edge.clock import Clock
from penstock.edge.pause import pause
from penstock.engine.errors import QueueClosed, StoreFailed, StoreLocked
from penstock.engine.group_commit import AsyncFlush, CommitDelay
from penstock.engine.journal import LedgerCommit
from penstock.engine.ledger import Ledger
from penstock.engine.pending import Pending
from penstock.engine.queue.entry import Entry
from penstock.engine.store.port import Store
from penstock.engine.stored_queue import StoredQueue
from penstock.engine.waiters import Waiters

log = logging.getLogger(__name__)

# From this size on, the work that the loop can do meanwhile is worth the way to the thread and back.
_LARGE_BYTES = 256 * KIB
# Enough for the operations pending at a stop and those that follow from them; later callers are refused.
_LAST_COMMITS = 8
_LOST_CHECK_S = 0.5
_NEVER_S = 86_400.0


class AsyncShell:
    """Used from one event loop; `close` answers all callers and finishes every write."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self.ledger = ledger
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._writer = ThreadPoolExecutor(1, "penstock-writer")
        self._reader = ThreadPoolExecutor(1, "penstock-reader")
        self._local = ledger.store.local
        self.require_owned = ledger.store.require_owned
        flush = ledger.store.flush
        self._async_flush = None if flush is None else AsyncFlush(flush, self._writer)
        self._commit_delay = CommitDelay()
        self._committing: asyncio.Task[None] | None = None
        self._paging: dict[int, asyncio.Task[None]] = {}
        self._waiters: dict[int, Waiters] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._sweeper = self._loop.call_later(MINUTE_MS / 1000, self._sweep)
        self._closed = False
        self._refused: str | None = None
        """Why the latest commit failed; None if it succeeded."""

    async def commit(self, pending: Pending) -> None:
        """Wait until an operation is durable; raise its error if it failed."""
        if not pending.done and not self._closed:
            done = self._loop.create_future()
            self.when_done(pending, partial(_set_done, done))
            await done
        self.check(pending)

    def when_done(self, pending: Pending, then: Callable[[], None]) -> None:
        """Call `then` once an operation is durable or has failed; `check` says which."""
        if pending.done or self._closed:
            then()
            # The store keeps nothing, so no commit follows that would set the timer.
            self._arm()
            return
        pending.on_done = then
        if self._committing is None:
            self.kick()

    @property
    def last_failure(self) -> str | None:
        """Why the latest commit failed; None if it succeeded, or failed for a disk that has space again."""
        disk_space = self.ledger.store.disk_space
        if self._refused is not None and disk_space is not None and disk_space.is_exhausted:
            # A part that is not ready gets no work, so without this no later commit would ever succeed.
            return disk_space.problem()
        return self._refused

    def check(self, pending: Pending) -> None:
        """Raise the error of an operation that is done, if it failed."""
        if self._closed and not (pending.done and self.ledger.store.durable):
            raise _shutting_down()
        pending.result()

    def kick(self) -> None:
        """Start a commit if operations wait for one, and set the timer."""
        if self._committing is None and self.ledger.has_unwritten() and not self._closed:
            self._committing = self._loop.create_task(self._commit_one())
        self._arm()

    async def _commit_one(self) -> None:
        if self._local:
            while not self._commit_delay.is_complete(self.ledger.waiting_callers):
                await pause(0)
        commit = self.ledger.take_commit()
        assert commit is not None
        try:
            if self._local and commit.batch.size_bytes < _LARGE_BYTES:
                shares = self.ledger.store.apply(commit.batch)
            else:
                shares = await self._loop.run_in_executor(self._writer, self.ledger.store.apply, commit.batch)
            if self._async_flush is not None:
                await self._async_flush.flush()
        except PenstockError as error:
            self._refuse(commit, error)
        except Exception as error:
            log.exception("the store failed unexpectedly")
            self._refuse(commit, StoreFailed(f"the store failed: {error}"))
        else:
            self._refused = None
            self.ledger.committed(commit, shares, self._clock.now_ms())
        finally:
            self._committing = None
        # The callers just answered run before this call, so their next operations share the next commit.
        self._loop.call_soon(self.kick)

    def _refuse(self, commit: LedgerCommit, error: PenstockError) -> None:
        self._refused = error.message
        log.error("a commit failed and its changes were undone: %s", error)
        self.ledger.failed(commit, error, self._clock.now_ms())

    async def receive(
        self,
        queue: StoredQueue,
        max_messages: int,
        *,
        wait_s: float = 0.0,
        max_bytes: int | None = None,
        lease_ms: int | None = None,
    ) -> list[Entry]:
        """Lease messages; if there are none, wait up to `wait_s` for one to arrive."""
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
        """Lease messages in memory, and start to read more of a deep backlog."""
        self.require_owned()
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
        """Read the next page of a queue if its window runs low; return False if there was nothing to read."""
        if not queue.wants_page() or self._closed:
            return False
        before = queue.next_stored_seq
        await asyncio.shield(self._page(queue))
        return queue.next_stored_seq != before

    async def read_up_to(self, queue: StoredQueue, seq: int) -> None:
        """Read messages from the store until one with this sequence is in memory, if it exists."""
        while (before := queue.next_stored_seq) is not None and before <= seq:
            if self._closed or queue.engine.held >= queue.window.lookahead:
                raise StoreFailed("the message is behind too many others that wait; try again later")
            await asyncio.shield(self._page(queue))
            if queue.next_stored_seq == before:
                raise StoreFailed("the message cannot be read; try again")

    async def peek(self, queue: StoredQueue, after_seq: int, limit: int) -> list[Entry]:
        """Return the next messages after a sequence number, in order, from memory or the store; changes nothing."""
        self.require_owned()
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
                # A message may have come back during the read, when no waiter was registered.
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
            queue.on_dropped = partial(self._close_waiters, queue.id)
        return waiters

    def _close_waiters(self, queue_id: int) -> None:
        self._waiters.pop(queue_id).close()

    def tick(self) -> None:
        """Process what is due by the clock."""
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
        self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.tick()

    def _sweep(self) -> None:
        self.ledger.sweep(self._clock.now_ms())
        self.kick()
        self._sweeper = self._loop.call_later(MINUTE_MS / 1000, self._sweep)

    def answer_waiters(self) -> None:
        """Return nothing to waiting receivers, now and later; messages at hand can still be leased."""
        for waiters in self._waiters.values():
            waiters.close()

    def answer_waiters_of(self, queue: StoredQueue) -> None:
        """Return nothing to the receivers that wait for one queue; later ones wait again."""
        if queue.id in self._waiters:
            self._close_waiters(queue.id)
            queue.on_ready = queue.on_dropped = None

    async def close(self) -> None:
        """Return nothing to waiting receivers, finish every write, and close the store."""
        self._sweeper.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self.ledger.save_delivery_counts()
        for _ in range(_LAST_COMMITS):
            self.kick()
            if self._committing is not None:
                await asyncio.wait([self._committing])
        self._closed = True
        if self._committing is not None:
            await asyncio.wait([self._committing])
        if (commit := self.ledger.take_commit()) is not None:
            self.ledger.failed(commit, _shutting_down(), self._clock.now_ms())
        for waiters in self._waiters.values():
            waiters.close()
        if self._paging:
            await asyncio.wait(list(self._paging.values()))
        self._writer.shutdown()
        self._reader.shutdown()
        if self._async_flush is not None:
            self._async_flush.close()
        self.ledger.store.close()


async def while_owned(
    serving: Coroutine[Any, Any, None], stores: Iterable[Store], before_stop: Callable[[], None]
) -> None:
    """Serve to the end; if another process takes a store first, stop and raise StoreLocked, for a restart."""
    served = asyncio.ensure_future(serving)
    lost = asyncio.ensure_future(_until_lost([store for store in stores if not store.local]))
    try:
        await asyncio.wait({served, lost}, return_when=asyncio.FIRST_COMPLETED)
        if served.done():
            await served
            return
        before_stop()
        raise StoreLocked(lost.result())
    finally:
        for task in (served, lost):
            task.cancel()
        await asyncio.wait({served, lost})


async def _until_lost(stores: list[Store]) -> str:
    while True:
        await pause(_LOST_CHECK_S if stores else _NEVER_S)
        for store in stores:
            if store.lost is not None:
                return store.lost


def _shutting_down() -> QueueClosed:
    return QueueClosed("Penstock is shutting down; try again after the restart")


def _set_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
