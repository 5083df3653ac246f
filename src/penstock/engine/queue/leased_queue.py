"""The leased queue: pure, with the clock as an argument; every operation is O(1) or O(log n).

Messages that leave the queue without an acknowledgement (dead letters, messages past their retention) go into an outbox
in state SETTLING, and the ledger settles them once the store has recorded it. A SETTLING message blocks its lane.
Messages that came back are listed in `released` on request, so that their delivery counts can be made durable. If the
policy allows late acknowledgements, they are also known by their sequence, for the leases they had before.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from operator import attrgetter

from penstock.engine.errors import LeaseNotFound
from penstock.engine.queue.entry import GONE, LEASED, SETTLING, WAITING, Batch, Counters, Entry, held_bytes
from penstock.engine.queue.lease import QueueLeases
from penstock.engine.queue.line import Line, MessageLane
from penstock.engine.queue.policy import DeadLetterAt, Grouping, QueuePolicy


class LeasedQueue:
    """The messages of one queue that are in memory, and their leases."""

    __slots__ = (
        "_leases",
        "_line",
        "_policy",
        "_returned",
        "_settling",
        "_ungrouped_next",
        "dead_letters",
        "expired",
        "held",
        "held_bytes",
        "leased_bytes",
        "released",
    )

    def __init__(self, policy: QueuePolicy, *, track_releases: bool = False, last_lease_id: int = 0) -> None:
        self._policy = policy
        self._line = Line(grouped=policy.grouping is not Grouping.NONE)
        self._ungrouped_next = False
        self._leases = QueueLeases(last_lease_id)
        self._returned: dict[int, Entry] = {}
        self._settling: dict[int, Entry] = {}
        self.dead_letters: list[Entry] = []
        self.expired: list[Entry] = []
        self.released: list[Entry] | None = [] if track_releases else None
        self.leased_bytes = 0
        self.held = 0
        self.held_bytes = 0

    @property
    def policy(self) -> QueuePolicy:
        """The current settings."""
        return self._policy

    @property
    def visible(self) -> int:
        """The number of messages that can be received."""
        return self._line.visible

    @property
    def delayed(self) -> int:
        """The number of messages that wait for a delay to pass."""
        return self._line.delayed

    @property
    def leased(self) -> int:
        """The number of leased messages."""
        return len(self._leases.live)

    def change_policy(self, policy: QueuePolicy) -> None:
        """Change the settings; the grouping cannot change while messages wait."""
        if policy.grouping is not self._policy.grouping:
            raise ValueError("the grouping of a queue is fixed when it is created")
        self._policy = policy

    def add(self, entries: Sequence[Entry], now_ms: int) -> None:
        """Add messages in order of their sequence."""
        self.held += len(entries)
        self.held_bytes += held_bytes(entries)
        self._line.join_all(entries, now_ms)

    def add_old(self, entries: Sequence[Entry], now_ms: int) -> None:
        """Add messages that may have had leases before a restart; those with a deadline are leased."""
        if self._policy.late_ack:
            self._returned.update((entry.seq, entry) for entry in entries)
        leased = [entry for entry in entries if entry.deadline_ms]
        for entry in leased:
            entry.state = LEASED
            self._leases.restore(entry)
            self._line.restore_lease(entry)
        self.held += len(leased)
        size_bytes = held_bytes(leased)
        self.held_bytes += size_bytes
        self.leased_bytes += size_bytes
        self.add([entry for entry in entries if not entry.deadline_ms], now_ms)

    def receive(
        self,
        now_ms: int,
        max_messages: int,
        *,
        max_bytes: int | None = None,
        lease_ms: int | None = None,
        first_always: bool = True,
    ) -> list[Entry]:
        """Lease up to `max_messages` and `max_bytes`; `first_always` allows one message that alone is larger."""
        self.advance(now_ms)
        policy = self._policy
        if policy.max_in_flight is not None:
            max_messages = min(max_messages, policy.max_in_flight - self.leased)
        flow_bytes = None
        if policy.max_in_flight_bytes is not None:
            flow_bytes = policy.max_in_flight_bytes - self.leased_bytes
            if flow_bytes <= 0:
                return []
        deadline_ms = now_ms + (policy.lease_ms if lease_ms is None else lease_ms)
        batch = Batch(policy, now_ms, max_messages, max_bytes, flow_bytes, leases=True, first_always=first_always)
        entries = self._take(batch)
        if entries:
            self._lease(entries, now_ms, deadline_ms)
            self.leased_bytes += batch.size_bytes
        return entries

    def take_for_move(self, now_ms: int, max_messages: int) -> list[Entry]:
        """Take messages without a lease, to settle them once another queue has them."""
        self.advance(now_ms)
        return self._take(Batch(self._policy, now_ms, max_messages, None, None, leases=False))

    def has_ready(self) -> bool:
        """Return whether a receive may find a message now."""
        return self._line.has_ready()

    def _take(self, batch: Batch) -> list[Entry]:
        """Alternate between lanes and messages without a group, from where the last call stopped."""
        line, entries = self._line, batch.entries
        if not line.grouped:
            self._take_ungrouped(batch)
            return entries
        while len(entries) < batch.max_messages:
            if line.ring and not self._ungrouped_next:
                if not self._take_from_lane(line.ring.popleft(), batch):
                    break
                self._ungrouped_next = True
                continue
            entry = line.pop_ungrouped()
            if entry is not None and not self._offer(entry, batch):
                line.put_back_ungrouped(entry)
                break
            self._ungrouped_next = False
            if entry is None and not line.ring:
                break
        return entries

    def _take_ungrouped(self, batch: Batch) -> None:
        """Take messages without a group, oldest first."""
        pop, offer, entries, max_messages = self._line.pop_ungrouped, self._offer, batch.entries, batch.max_messages
        while len(entries) < max_messages and (entry := pop()) is not None:
            if not offer(entry, batch):
                self._line.put_back_ungrouped(entry)
                return

    def _take_from_lane(self, lane: MessageLane, batch: Batch) -> bool:
        """Give one lane its turn; return False if its next message does not fit into the batch."""
        lane.ready = False
        limit_seq = lane.limit_seq()
        several = self._policy.grouping is Grouping.BATCH
        fits = True
        taken: list[int] = []
        while (entry := lane.first()) is not None and entry.state is WAITING and entry.seq < limit_seq:
            fits = self._offer(entry, batch)
            if not fits:
                break
            lane.pop()
            taken.append(entry.seq)
            # A message that went to an outbox blocks its lane until the store has recorded it.
            left = batch.leases and entry.state is SETTLING
            if not several or left or len(batch.entries) >= batch.max_messages:
                break
        lane.leave(taken)
        if not taken:
            self._line.place(lane, ahead=not fits)
        return fits

    def _offer(self, entry: Entry, batch: Batch) -> bool:
        """Put the next message into the batch or an outbox; return False if it does not fit."""
        message = entry.message
        if message.sent_ms <= batch.horizon_ms:
            self._move_to(entry, self.expired)
            return True
        if not batch.leases:
            self._move_to(entry, batch.entries)
            return True
        if entry.receive_count >= batch.max_deliveries:
            self._move_to(entry, self.dead_letters)
            return True
        size_bytes = batch.size_bytes + message.size_bytes
        if size_bytes > batch.sure_bytes and not batch.may_reach(size_bytes, len(self._leases.live)):
            return False
        batch.size_bytes = size_bytes
        batch.entries.append(entry)
        return True

    def _lease(self, entries: list[Entry], now_ms: int, deadline_ms: int) -> None:
        """Lease messages that were taken from the line."""
        for entry in entries:
            entry.state = LEASED
            entry.receive_count += 1
            entry.leased_ms = now_ms
            if not entry.first_received_ms:
                entry.first_received_ms = now_ms
        self._leases.grant(entries, deadline_ms)
        self._line.visible -= len(entries)

    def _move_to(self, entry: Entry, outbox: list[Entry]) -> None:
        self._line.visible -= 1
        self._begin_settling(entry)
        outbox.append(entry)

    def _begin_settling(self, entry: Entry) -> None:
        entry.state = SETTLING
        self._settling[entry.seq] = entry

    def _is_used_up(self, entry: Entry, moment: DeadLetterAt) -> bool:
        limit = self._policy.delivery_limit(moment)
        return limit is not None and entry.receive_count >= limit

    def lease(self, lease_id: int, now_ms: int) -> Entry:
        """Return the message under a lease that has not expired."""
        entry = self._leases.live.get(lease_id)
        if entry is None or entry.deadline_ms <= now_ms:
            raise LeaseNotFound(f"no live lease {lease_id}")
        return entry

    def settle(self, lease_id: int, now_ms: int) -> Entry:
        """Start an acknowledgement: end the lease; the message neither waits nor is gone until `finish`."""
        entry = self._leases.live.get(lease_id)
        # An expired lease stays live until the next check; the policy says whether it may still acknowledge.
        if entry is not None and (entry.deadline_ms > now_ms or self._policy.late_ack):
            self._leases.end(entry)
            self.leased_bytes -= entry.message.size_bytes
            entry.state = SETTLING
            self._settling[entry.seq] = entry
            return entry
        raise LeaseNotFound(f"no live lease {lease_id}")

    def settle_late(self, seq: int) -> Entry:
        """Do the same for a message that came back, by any lease it had; it may be leased again."""
        entry = self._returned.get(seq)
        if entry is None or entry.state is SETTLING:
            raise LeaseNotFound(f"no message {seq} that came back")
        if entry.state is LEASED:
            self._leases.end(entry)
            self.leased_bytes -= entry.message.size_bytes
        else:
            entry = self._returned[seq] = self._line.pull_out(entry)
        self._begin_settling(entry)
        return entry

    def settling(self, seq: int) -> Entry | None:
        """Return a message whose settlement is not durable yet."""
        return self._settling.get(seq)

    def returned(self, seq: int) -> Entry | None:
        """Return a message that came back, by its sequence, while it exists; it may be leased again."""
        entry = self._returned.get(seq)
        return None if entry is None or entry.state is SETTLING else entry

    def hide(self, entry: Entry, deadline_ms: int, now_ms: int) -> Entry:
        """Lease a message that came back and waits, for an earlier lease; this is not a delivery.

        Return the entry under the lease, which replaces the one that waited.
        """
        hidden = self._returned[entry.seq] = self._line.pull_out(entry)
        hidden.state = LEASED
        hidden.leased_ms = now_ms
        self._leases.grant([hidden], deadline_ms)
        self.leased_bytes += hidden.message.size_bytes
        return hidden

    def finish(self, entry: Entry) -> None:
        """Remove a message whose settlement is durable, and let its lane continue."""
        self.finish_all((entry,))

    def finish_all(self, entries: Iterable[Entry]) -> None:
        """Do the same for several messages."""
        settling, line = self._settling, self._line
        for entry in entries:
            if settling.get(entry.seq) is not entry:
                continue  # purged in the meantime
            del settling[entry.seq]
            entry.state = GONE
            self.held -= 1
            self.held_bytes -= entry.message.size_bytes
            if self._returned:
                self._returned.pop(entry.seq, None)
            if line.grouped:
                line.free_lane(entry)

    def unsettle(self, entry: Entry, now_ms: int) -> None:
        """Undo a settlement that the store refused: restore a running lease, otherwise let the message wait again."""
        if self._settling.get(entry.seq) is not entry:
            return  # purged in the meantime
        del self._settling[entry.seq]
        if entry.deadline_ms > now_ms:
            entry.state = LEASED
            self._leases.restore(entry)
            self.leased_bytes += entry.message.size_bytes
        else:
            entry.deadline_ms = 0
            if self._policy.late_ack and entry.lease_id:
                self._returned[entry.seq] = entry
            self._line.rejoin(entry, now_ms, max(0, entry.available_ms - now_ms))

    def release(self, lease_id: int, now_ms: int, delay_ms: int | None = None) -> Entry:
        """End a lease without acknowledgement; the delay defaults to the retry policy's."""
        entry = self.lease(lease_id, now_ms)
        self._leases.end(entry)
        self._end_lease(entry, now_ms, delay_ms)
        return entry

    def set_deadline(self, lease_id: int, deadline_ms: int, now_ms: int) -> Entry:
        """Change the deadline of a live lease."""
        entry = self.lease(lease_id, now_ms)
        self._leases.move_deadline(entry, deadline_ms)
        return entry

    def _end_lease(self, entry: Entry, now_ms: int, delay_ms: int | None) -> None:
        policy = self._policy
        entry.deadline_ms = 0
        self.leased_bytes -= entry.message.size_bytes
        if delay_ms is None:
            delay_ms = policy.retry.delay_ms(entry.receive_count) if policy.retry is not None else 0
        if self._is_used_up(entry, DeadLetterAt.RELEASE):
            entry.available_ms = now_ms + delay_ms  # used if the message has no dead-letter queue and must wait
            self._begin_settling(entry)
            self.dead_letters.append(entry)
            return
        if policy.late_ack:
            self._returned[entry.seq] = entry
        if self.released is not None:
            self.released.append(entry)
        self._line.rejoin(entry, now_ms, delay_ms)

    def advance(self, now_ms: int) -> None:
        """End expired leases and make delayed messages available that are due."""
        while (entry := self._leases.pop_expired(now_ms)) is not None:
            self._end_lease(entry, entry.deadline_ms, None)  # a back-off starts when the lease expired, not now
        self._line.admit_due(now_ms)

    def next_due_ms(self) -> int | None:
        """Return when `advance` has something to do again, or None if nothing is timed."""
        deadline_ms, available_ms = self._leases.next_deadline_ms(), self._line.next_available_ms()
        if deadline_ms is None or available_ms is None:
            return available_ms if deadline_ms is None else deadline_ms
        return min(deadline_ms, available_ms)

    def drop_past_retention(self, now_ms: int, limit: int) -> int:
        """Move up to `limit` messages that are first in line and too old into the `expired` outbox; return how many."""
        horizon_ms = now_ms - self._policy.retention_ms
        line, expired = self._line, self.expired
        stop = len(expired) + limit
        while len(expired) < stop and (entry := line.first_fresh()) is not None:
            if entry.message.sent_ms > horizon_ms:
                break
            line.pop_fresh()
            self._move_to(entry, expired)
        for lane in list(line.lanes.values()):
            if lane.in_flight:
                continue
            while len(expired) < stop and (entry := lane.first()) is not None and entry.state is WAITING:
                if entry.message.sent_ms > horizon_ms:
                    break
                lane.pop()
                lane.leave([entry.seq])
                self._move_to(entry, expired)
        return len(expired) + limit - stop

    def counters(self) -> Counters:
        """Return the number of messages in memory by state."""
        return Counters(
            visible=self.visible,
            leased=self.leased,
            delayed=self.delayed,
            settling=len(self._settling),
            total_bytes=self.held_bytes,
            leased_bytes=self.leased_bytes,
        )

    def peek(self, after_seq: int, limit: int) -> list[Entry]:
        """Return the next messages after a sequence number, in order, leased or not; changes nothing."""
        return nsmallest(limit, (entry for entry in self._all() if entry.seq > after_seq), key=attrgetter("seq"))

    def leases(self) -> Iterator[Entry]:
        """Yield all leased messages."""
        yield from self._leases.live.values()

    def purge(self) -> int:
        """Drop all messages, leased or not; return their number."""
        dropped = self.held
        for entry in self._leases.live.values():
            entry.state = GONE
        for entry in self._settling.values():
            entry.state = GONE
        self._line.clear()
        self._leases.clear()
        self._returned.clear()
        self._settling.clear()
        self.dead_letters.clear()
        self.expired.clear()
        if self.released is not None:
            self.released.clear()
        self.leased_bytes = self.held = self.held_bytes = 0
        return dropped

    def _all(self) -> Iterator[Entry]:
        yield from self._line.waiting()
        yield from self.leases()
