"""The ledger: all streams and queues of one store, as memory knows them.

Every operation changes memory as far as possible before the store has recorded it, and puts the rest into the journal.
A shell takes a commit from the journal, lets the store apply it, and reports `committed` or `failed`. Messages become
visible after their commit; acknowledged ones are gone after theirs. With a store that is not durable every operation
is complete when it returns. Nothing here waits, sleeps or reads a clock.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter

from penstock.domain.errors import PenstockError
from penstock.domain.ids import TsidFactory
from penstock.domain.message import Message
from penstock.engine.arrivals import Arrivals, Skips, drop_duplicates
from penstock.engine.backlog import BacklogPage, install_page, peek_stored
from penstock.engine.catalog import Catalog
from penstock.engine.errors import LeaseNotFound, StoreFailed
from penstock.engine.journal import Journal, LedgerCommit
from penstock.engine.pending import SETTLED, Pending, PendingSend
from penstock.engine.queue.entry import Entry, EntryState, Segment
from penstock.engine.queue.policy import Window
from penstock.engine.store.port import DedupRow, Shares, Store
from penstock.engine.store.segment_codec import DedupKey, encode_dedup_keys
from penstock.engine.stored_queue import QueueSchedule, StoredQueue
from penstock.engine.stream import Stream

log = logging.getLogger(__name__)

_segment: Callable[[Entry], Segment | None] = attrgetter("segment")
# The limit of one sweep per queue, so that a sweep never delays deliveries.
_SWEEP_LIMIT = 1000


class Ledger:
    """Sends, leases and settles the messages of a catalog's streams and queues."""

    def __init__(self, store: Store, ids: TsidFactory, window: Window | None = None) -> None:
        self.store = store
        self._ids = ids
        self._durable = store.durable
        self._journal = Journal(durable=store.durable)
        self._schedule = QueueSchedule()
        self._arrivals = Arrivals(self._journal, self._schedule)
        self.catalog = Catalog(store, ids, self._journal, window or Window())
        self.damaged_messages = 0
        self._now_ms = 0

    def send(
        self,
        stream: Stream,
        messages: Sequence[Message],
        now_ms: int,
        *,
        skips: Skips | None = None,
        dedup: bool = True,
    ) -> PendingSend:
        """Append messages to a stream; each of its queues gets every message except its `skips`.

        StoreFailed if the disk is nearly full, unless they come from another queue (without `dedup`).
        """
        if dedup and self._durable:
            self._require_room()
        self._now_ms = now_ms
        send = PendingSend()
        keys: list[DedupKey] = []
        if dedup and stream.dedup is not None:
            messages, keys = drop_duplicates(stream, messages, send, now_ms)
        else:
            send.expect(messages, stream.next_seq)
        if not self._durable:
            first_seq = stream.next_seq
            stream.next_seq += len(messages)
            self._deliver(stream, first_seq, messages, skips)
        elif stream.queues and messages:
            if keys:
                stream.undecided.append(send)
            self._arrivals.append(stream, messages, skips or {}, keys, now_ms)
        self._journal.wait(send)
        return send

    def receive(
        self,
        queue: StoredQueue,
        now_ms: int,
        max_messages: int,
        *,
        max_bytes: int | None = None,
        lease_ms: int | None = None,
        first_always: bool = True,
    ) -> list[Entry]:
        """Lease messages in memory; those beyond the window are not considered (see `StoredQueue.wants_page`)."""
        self._now_ms = now_ms
        entries = queue.engine.receive(
            now_ms, max_messages, max_bytes=max_bytes, lease_ms=lease_ms, first_always=first_always
        )
        self._collect(queue)
        return entries

    def ack(self, queue: StoredQueue, lease_ids: Iterable[int], now_ms: int) -> Pending:
        """Settle leased messages; raise LeaseNotFound and settle none if one of the leases is not live."""
        self._now_ms = now_ms
        entries: list[Entry] = []
        settle = queue.engine.settle
        try:
            for lease_id in lease_ids:
                entries.append(settle(lease_id, now_ms))  # noqa: PERF401 what was settled before an error is undone
        except PenstockError:
            for entry in entries:
                queue.engine.unsettle(entry, now_ms)
            raise
        return self.settle(queue, entries)

    def release(self, queue: StoredQueue, lease_id: int, now_ms: int, delay_ms: int | None = None) -> Entry:
        """End a lease without acknowledgement."""
        self._now_ms = now_ms
        entry = queue.engine.release(lease_id, now_ms, delay_ms)
        self._collect(queue)
        queue.notify()
        return entry

    def set_deadline(self, queue: StoredQueue, lease_id: int, deadline_ms: int, now_ms: int) -> Entry:
        """Change the deadline of a live lease."""
        entry = queue.engine.set_deadline(lease_id, deadline_ms, now_ms)
        self._schedule.arm(queue)
        return entry

    def save_leases(self, queue: StoredQueue, entries: Iterable[Entry]) -> Pending:
        """Make leases durable, so that the next process continues them even after a crash."""
        for entry in entries:
            self._save_delivery(queue, entry)
        pending = Pending()
        self._journal.wait(pending)
        return pending

    def wait_for_settlement(self, entry: Entry) -> Pending:
        """Return an operation that succeeds if a settlement in progress does."""
        pending = Pending()

        def check() -> None:
            if entry.state is not EntryState.GONE:
                pending.error = StoreFailed("a message was not settled; try again")

        pending.on_commit(check)
        self._journal.wait(pending)
        return pending

    def set_late_deadline(self, queue: StoredQueue, seq: int, deadline_ms: int, now_ms: int) -> Entry:
        """Change the deadline of a message by any lease it had, and return it; if it waits it is hidden until then."""
        entry = queue.engine.returned(seq)
        if entry is None:
            raise LeaseNotFound(f"no message {seq} that came back")
        if entry.state is not EntryState.LEASED:
            if deadline_ms > now_ms:
                entry = queue.engine.hide(entry, deadline_ms, now_ms)
        elif deadline_ms > now_ms:
            queue.engine.set_deadline(entry.lease_id, deadline_ms, now_ms)
        else:
            self.release(queue, entry.lease_id, now_ms, 0)
        self._schedule.arm(queue)
        return entry

    def settle(self, queue: StoredQueue, entries: list[Entry]) -> Pending:
        """Settle entries in state SETTLING: acknowledged, expired, or sent elsewhere."""
        if not self._durable:
            self._finish(queue, entries)
            return SETTLED
        self._mark(queue, entries)
        pending = Pending(lambda: self._finish(queue, entries), lambda: self._unmark(queue, entries))
        self._journal.wait(pending)
        return pending

    def move(
        self,
        source: StoredQueue,
        entries: list[Entry],
        target: Stream,
        messages: Sequence[Message],
        skips: Skips | None = None,
    ) -> Pending:
        """Send `messages` to another stream and settle the entries they replace, both or neither."""
        self.send(target, messages, self._now_ms, skips=skips, dedup=False)
        return self.settle(source, entries)

    def accept(
        self, stream: Stream, messages: Sequence[Message], origins: Sequence[str], memory: Stream, now_ms: int
    ) -> Pending:
        """Append messages that leave another ledger, each once by its origin, however often that is tried.

        The origins are remembered by the stream `memory` for its deduplication window, in the same commit.
        """
        known = memory.dedup
        assert known is not None
        fresh = {
            origin: message
            for origin, message in zip(origins, messages, strict=True)
            if known.find(origin, now_ms) is None
        }
        send = self.send(stream, list(fresh.values()), now_ms, dedup=False)
        if fresh:
            keys = [DedupKey(origin, message.id, 0) for origin, message in fresh.items()]
            known.remember_new(list(fresh), keys, now_ms)
            if self._durable:
                row_id, expires_ms = self._ids.next_value(now_ms), now_ms + memory.dedup_window_ms
                self._journal.batch.dedups.append(DedupRow(memory.id, row_id, expires_ms, encode_dedup_keys(keys)))
                send.on_failure(partial(known.forget_all, list(fresh)))
        return send

    def redrive(self, source: StoredQueue, target: Stream, now_ms: int, max_messages: int) -> tuple[Pending, int]:
        """Move up to `max_messages` that wait in a queue to another stream, unchanged."""
        self._now_ms = now_ms
        entries = source.engine.take_for_move(now_ms, max_messages)
        pending = self.move(source, entries, target, [entry.message for entry in entries])
        self._collect(source)
        return pending, len(entries)

    def give_back(self, queue: StoredQueue, entries: list[Entry]) -> None:
        """Let entries of an outbox wait again, because there is nowhere to send them."""
        for entry in entries:
            queue.engine.unsettle(entry, self._now_ms)
            self._save_delivery(queue, entry)
        queue.notify()

    def restore_leases(self, now_ms: int) -> None:
        """Read the messages whose leases outlived the last process, before anything is served. Blocks."""
        queues = {queue.id: queue for queue in self.catalog.queues.values()}
        for queue_id, last_seq in self.store.last_leases(now_ms).items():
            queue = queues.get(queue_id)
            while queue is not None and queue.next_stored_seq is not None and queue.next_stored_seq <= last_seq:
                page = self.read_page(queue)
                if page is None or queue.engine.held >= queue.window.lookahead:
                    break
                self.install_page(queue, page, now_ms)

    def read_page(self, queue: StoredQueue) -> BacklogPage | None:
        """Read the next messages of a queue from the store; None if all are in memory. Blocks; changes nothing."""
        if queue.next_stored_seq is None:
            return None
        return BacklogPage.read(self.store, queue, self.catalog.by_id[queue.stream_id].committed_seq)

    def peek_stored(self, queue: StoredQueue, after_seq: int, limit: int) -> list[Entry]:
        """Return the next messages after a sequence number that are only in the store. Blocks; changes nothing."""
        return peek_stored(self.store, queue, after_seq, limit)

    def install_page(self, queue: StoredQueue, page: BacklogPage, now_ms: int) -> None:
        """Add the messages of a page to the window."""
        self._now_ms = now_ms
        stream = self.catalog.by_id.get(queue.stream_id)
        if stream is None or queue.closing:
            return
        damaged = install_page(queue, stream, page, self._journal, now_ms)
        self.damaged_messages += damaged
        if damaged:
            log.error("%d damaged messages were set aside in the table 'damaged'", damaged, extra={"queue": queue.name})
        self._collect(queue)
        queue.notify()

    def run_due(self, now_ms: int) -> None:
        """End expired leases and delays, in all queues."""
        self._now_ms = now_ms
        while (queue := self._schedule.pop_due(now_ms)) is not None:
            if self.catalog.queues.get(queue.name) is queue:
                queue.engine.advance(now_ms)
                self._collect(queue)
                queue.notify()

    def next_due_ms(self) -> int | None:
        """Return when `run_due` has something to do again."""
        return self._schedule.next_due_ms()

    def sweep(self, now_ms: int) -> None:
        """Drop messages past their retention and old deduplication ids; meant to run about once a minute."""
        self._now_ms = now_ms
        if self._durable and any(stream.dedup is not None for stream in self.catalog.streams.values()):
            self._journal.batch.dedup_horizon_ms = now_ms
        for queue in self.catalog.queues.values():
            queue.engine.drop_past_retention(now_ms, _SWEEP_LIMIT)
            self._collect(queue)

    def expire(self, queue: StoredQueue, now_ms: int) -> None:
        """Drop all messages past their retention from one queue's memory, for queues without receivers."""
        self._now_ms = now_ms
        while queue.engine.drop_past_retention(now_ms, _SWEEP_LIMIT):
            self._collect(queue)

    def save_delivery_counts(self) -> None:
        """Save the delivery counts of leased messages before a stop, and the leases that continue after it."""
        for queue in self.catalog.queues.values():
            for entry in queue.engine.leases():
                self._save_delivery(queue, entry)

    def has_unwritten(self) -> bool:
        """Return whether anything waits to be committed."""
        return not self._journal.is_empty

    @property
    def waiting_callers(self) -> int:
        """The number of operations that wait for the next commit."""
        return self._journal.waiting_callers

    def take_commit(self) -> LedgerCommit | None:
        """Return what waits to be committed, for the shell to apply; one commit at a time."""
        return None if self._journal.is_empty else self._journal.take()

    def committed(self, commit: LedgerCommit, shares: Shares, now_ms: int) -> None:
        """Apply a durable commit: its changes, messages and settlements take effect."""
        self._now_ms = now_ms
        for change in commit.changes:
            change.committed()
        for builder in commit.builders:
            self._arrivals.complete(builder, now_ms)
        for queue, acks in commit.finished:
            if queue.acks.get(acks.segment.first_seq) is acks:
                del queue.acks[acks.segment.first_seq]
        for stream_id, stream_shares in shares.items():
            stream = self.catalog.by_id.get(stream_id)
            if stream is not None:
                stream.shares = stream_shares
        for pending in commit.pendings:
            pending.committed()

    def failed(self, commit: LedgerCommit, error: PenstockError, now_ms: int) -> None:
        """Undo a commit that the store refused, and fail its operations."""
        self._now_ms = now_ms
        for stream, first_seq, count in reversed(commit.undo_shares):
            stream.shares[first_seq] = count
        for stream, seq_limit in reversed(commit.undo_limits):
            stream.seq_limit = seq_limit
        for builder in commit.builders:
            self._arrivals.abandon(builder)
        for pending in (*commit.changes, *commit.pendings):
            pending.failed(error)

    def _require_room(self) -> None:
        disk_space = self.store.disk_space
        lack = None if disk_space is None else disk_space.lack()
        if lack is not None:
            raise StoreFailed(lack)

    def _deliver(self, stream: Stream, first_seq: int, messages: Sequence[Message], skips: Skips | None) -> None:
        for queue in stream.queues.values():
            queue.add(first_seq, messages, None, skips.get(queue.id, 0) if skips else 0, self._now_ms)
            if queue.engine.delayed:
                self._schedule.arm(queue)
            queue.notify()

    def _finish(self, queue: StoredQueue, entries: list[Entry]) -> None:
        queue.engine.finish_all(entries)
        queue.notify()

    def _mark(self, queue: StoredQueue, entries: list[Entry]) -> None:
        stream = self.catalog.by_id[queue.stream_id]
        # Messages that are settled together mostly arrived together.
        for segment, together in groupby(entries, _segment):
            if segment is not None:
                acks = queue.acks_of(segment)
                acks.mark_all(together)
                self._journal.touch(stream, queue, acks)

    def _unmark(self, queue: StoredQueue, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.segment is not None and entry.seq >= queue.start_seq:
                queue.acks_of(entry.segment).unmark(entry.seq, entry.message.size_bytes)
            queue.engine.unsettle(entry, self._now_ms)
        self._schedule.arm(queue)
        queue.notify()

    def _save_delivery(self, queue: StoredQueue, entry: Entry) -> None:
        if entry.segment is not None:
            queue.acks_of(entry.segment).has_deliveries = True
            self._journal.save_delivery(queue, entry)

    def _collect(self, queue: StoredQueue) -> None:
        """Process the outboxes of the engine, and schedule its next due time."""
        engine = queue.engine
        if engine.released:
            for entry in engine.released:
                self._save_delivery(queue, entry)
            engine.released.clear()
        if engine.expired:
            expired, engine.expired = engine.expired, []
            self.settle(queue, expired)
        if engine.dead_letters:
            dead_letters, engine.dead_letters = engine.dead_letters, []
            if queue.on_dead_letters is None:
                self.give_back(queue, dead_letters)
            else:
                queue.on_dead_letters(dead_letters)
        self._schedule.arm(queue)
