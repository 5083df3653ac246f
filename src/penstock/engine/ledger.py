"""The ledger: all streams and queues of one store, as memory knows them.

Every operation changes memory as far as it may before the store has it, and gathers the rest in the journal. A shell
takes the journal's flight, lets the store apply it, and reports back with `committed` or `failed`: messages become
visible after their commit, acknowledged ones are gone after theirs. With a store that is not durable every operation
is complete when it returns. Nothing here waits, sleeps, or reads a clock.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from penstock.domain.errors import PenstockError
from penstock.domain.ids import TsidFactory
from penstock.domain.message import Message
from penstock.engine.arrivals import Arrivals, Skips, drop_duplicates
from penstock.engine.catalog import Catalog
from penstock.engine.entry import Entry, Segment
from penstock.engine.journal import Flight, Journal
from penstock.engine.paging import BacklogPage, install_page, peek_stored
from penstock.engine.pending import SETTLED, Pending, PendingSend
from penstock.engine.policy import Window
from penstock.engine.store.port import Shares, Store
from penstock.engine.store.segment_codec import DedupKey
from penstock.engine.stored_queue import QueueSchedule, StoredQueue
from penstock.engine.stream import Stream

log = logging.getLogger(__name__)

_segment: Callable[[Entry], Segment | None] = attrgetter("segment")
# How much one sweep may do in one queue, so that a sweep never holds up deliveries.
_SWEEP_LIMIT = 1000


class Ledger:
    """Sends, leases and settles the messages of a catalog's streams and queues."""

    def __init__(self, store: Store, ids: TsidFactory, window: Window | None = None) -> None:
        self.store = store
        self._durable = store.durable
        self._journal = Journal(durable=store.durable)
        self._schedule = QueueSchedule()
        self._arrivals = Arrivals(self._journal, self._schedule)
        self.catalog = Catalog(store, ids, self._journal, window or Window())
        self.damaged_messages = 0
        self._now_ms = 0

    # Messages

    def send(
        self,
        stream: Stream,
        messages: Sequence[Message],
        now_ms: int,
        *,
        skips: Skips | None = None,
        dedup: bool = True,
    ) -> PendingSend:
        """Append messages to a stream; every queue of it gets each one that `skips` does not except."""
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
        """Lease messages; what is beyond the window is not looked at (see `wants_page` of the queue)."""
        self._now_ms = now_ms
        entries = queue.engine.receive(
            now_ms, max_messages, max_bytes=max_bytes, lease_ms=lease_ms, first_always=first_always
        )
        self._collect(queue)
        return entries

    def ack(self, queue: StoredQueue, lease_ids: Iterable[int], now_ms: int) -> Pending:
        """Settle leased messages; LeaseNotFound and nothing settled when one of the leases is not live."""
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
        """Move the moment a live lease runs out."""
        entry = queue.engine.set_deadline(lease_id, deadline_ms, now_ms)
        self._schedule.arm(queue)
        return entry

    def move(
        self,
        source: StoredQueue,
        entries: list[Entry],
        target: Stream,
        messages: Sequence[Message],
        skips: Skips | None = None,
    ) -> Pending:
        """Send `messages` to another stream and settle the entries they stand for, both or neither."""
        self.send(target, messages, self._now_ms, skips=skips, dedup=False)
        return self.settle(source, entries)

    def redrive(self, source: StoredQueue, target: Stream, now_ms: int, max_messages: int) -> tuple[Pending, int]:
        """Move up to `max_messages` that wait in a queue to another stream, as they are."""
        self._now_ms = now_ms
        entries = source.engine.take_for_move(now_ms, max_messages)
        pending = self.move(source, entries, target, [entry.message for entry in entries])
        self._collect(source)
        return pending, len(entries)

    def give_back(self, queue: StoredQueue, entries: list[Entry]) -> None:
        """Put entries of an outbox back in line, when there is nowhere for them to go."""
        for entry in entries:
            queue.engine.unsettle(entry, self._now_ms)
            self._note_delivery(queue, entry)
        queue.notify()

    # Pages

    def read_page(self, queue: StoredQueue) -> BacklogPage | None:
        """Read the next messages of a queue from the store; None when all are in memory. Blocks; changes nothing."""
        if queue.next_stored_seq is None:
            return None
        return BacklogPage.read(self.store, queue, self.catalog.by_id[queue.stream_id].committed_seq)

    def peek_stored(self, queue: StoredQueue, after_seq: int, limit: int) -> list[Entry]:
        """The next messages after a sequence number that are in the store only. Blocks; changes nothing."""
        return peek_stored(self.store, queue, after_seq, limit)

    def install_page(self, queue: StoredQueue, page: BacklogPage, now_ms: int) -> None:
        """Let the messages of a page in."""
        self._now_ms = now_ms
        stream = self.catalog.by_id.get(queue.stream_id)
        if stream is None or queue.closing:
            return
        damaged = install_page(queue, stream, page, self._journal, now_ms)
        self.damaged_messages += damaged
        if damaged:
            log.error("%d damaged messages set aside, see the table 'damaged'", damaged, extra={"queue": queue.name})
        self._collect(queue)
        queue.notify()

    # Time

    def run_due(self, now_ms: int) -> None:
        """End leases and delays that have run out, in all queues."""
        self._now_ms = now_ms
        while (queue := self._schedule.pop_due(now_ms)) is not None:
            if self.catalog.queues.get(queue.name) is queue:
                queue.engine.advance(now_ms)
                self._collect(queue)
                queue.notify()

    def next_due_ms(self) -> int | None:
        """When `run_due` has something to do again."""
        return self._schedule.next_due_ms()

    def sweep(self, now_ms: int) -> None:
        """Drop what is past its retention and forget old deduplication ids; meant to run about once a minute."""
        self._now_ms = now_ms
        if self._durable and any(stream.dedup is not None for stream in self.catalog.streams.values()):
            self._journal.batch.dedup_horizon_ms = now_ms
        for queue in self.catalog.queues.values():
            queue.engine.drop_past_retention(now_ms, _SWEEP_LIMIT)
            self._collect(queue)

    def expire(self, queue: StoredQueue, now_ms: int) -> None:
        """Drop all that is past its retention in one queue's memory, for queues nobody receives from."""
        self._now_ms = now_ms
        while queue.engine.drop_past_retention(now_ms, _SWEEP_LIMIT):
            self._collect(queue)

    def note_leases(self) -> None:
        """Before a stop: keep the delivery counts of what is handed out, since its leases end with this process."""
        for queue in self.catalog.queues.values():
            for entry in queue.engine.leases():
                self._note_delivery(queue, entry)

    # Commits

    def has_unwritten(self) -> bool:
        """Whether anything waits to be committed."""
        return not self._journal.is_empty

    @property
    def waiting_callers(self) -> int:
        """How many operations wait for the next commit."""
        return self._journal.waiting_callers

    def take_flight(self) -> Flight | None:
        """What waits to be committed, for the shell to apply; at most one flight is under way at a time."""
        return None if self._journal.is_empty else self._journal.take()

    def committed(self, flight: Flight, shares: Shares, now_ms: int) -> None:
        """The store has a flight: its changes, messages and settlements take effect."""
        self._now_ms = now_ms
        for change in flight.changes:
            change.committed()
        for builder in flight.builders:
            self._arrivals.land(builder, now_ms)
        for queue, acks in flight.finished:
            if queue.acks.get(acks.segment.first_seq) is acks:
                del queue.acks[acks.segment.first_seq]
        for stream_id, stream_shares in shares.items():
            stream = self.catalog.by_id.get(stream_id)
            if stream is not None:
                stream.shares = stream_shares
        for pending in flight.pendings:
            pending.committed()

    def failed(self, flight: Flight, error: PenstockError, now_ms: int) -> None:
        """The store refused a flight: nothing of it is kept, everybody concerned is told."""
        self._now_ms = now_ms
        for stream, first_seq, count in reversed(flight.undo_shares):
            stream.shares[first_seq] = count
        for stream, seq_limit in reversed(flight.undo_limits):
            stream.seq_limit = seq_limit
        for builder in flight.builders:
            self._arrivals.abandon(builder)
        for pending in (*flight.changes, *flight.pendings):
            pending.failed(error)

    # Inside

    def _deliver(self, stream: Stream, first_seq: int, messages: Sequence[Message], skips: Skips | None) -> None:
        for queue in stream.queues.values():
            queue.take_in(first_seq, messages, None, skips.get(queue.id, 0) if skips else 0, self._now_ms)
            if queue.engine.delayed:
                self._schedule.arm(queue)
            queue.notify()

    def settle(self, queue: StoredQueue, entries: list[Entry]) -> Pending:
        """Settle entries that the engine already holds as settling: acknowledged, expired, or sent elsewhere."""
        if not self._durable:
            self._finish(queue, entries)
            return SETTLED
        self._mark(queue, entries)
        pending = Pending(lambda: self._finish(queue, entries), lambda: self._unmark(queue, entries))
        self._journal.wait(pending)
        return pending

    def _finish(self, queue: StoredQueue, entries: list[Entry]) -> None:
        queue.engine.finish_all(entries)
        queue.notify()

    def _mark(self, queue: StoredQueue, entries: list[Entry]) -> None:
        stream = self.catalog.by_id[queue.stream_id]
        # Messages that are settled together mostly came together.
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

    def _note_delivery(self, queue: StoredQueue, entry: Entry) -> None:
        if entry.segment is not None:
            queue.acks_of(entry.segment).has_deliveries = True
            self._journal.note_delivery(queue, entry)

    def _collect(self, queue: StoredQueue) -> None:
        """Carry out what the engine left in its outboxes, and remember when it is due again."""
        engine = queue.engine
        if engine.released:
            for entry in engine.released:
                self._note_delivery(queue, entry)
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
