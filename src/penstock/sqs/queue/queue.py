"""One SQS queue: its partitions, and receiving across them.

What the store keeps with a queue; every partition carries it, the first one's counts.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from penstock.domain.limits import MINUTE_MS
from penstock.domain.message import partition_of
from penstock.engine import Counters, DeadLetterAt, Grouping, QueuePolicy, Waiters, held_bytes
from penstock.sqs.queue.attributes import QueueAttributes
from penstock.sqs.queue.receipts import QueuePartition, ReceiveAttempts, SqsDelivery
from penstock.sqs.queue.throttling import QueueThrottle


class SqsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as it is on disk."""

    name: str
    attributes: QueueAttributes
    tags: dict[str, str] = {}
    created_s: int
    modified_s: int
    placement: tuple[str, ...] = ("",)
    """The database of each partition; the empty name is the server's own."""


encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(SqsRecord).decode


def partition_name(queue_name: str, index: int) -> str:
    """The name of a partition's stream and queue in the engine; `#` is in no queue name."""
    return f"{queue_name}#{index}"


def split_partition_name(name: str) -> tuple[str, int]:
    """The queue's name and the partition's index."""
    queue_name, _, index = name.rpartition("#")
    return queue_name, int(index)


MAX_IN_FLIGHT = 120_000
DEDUP_WINDOW_MS = 5 * MINUTE_MS
MAX_RECEIVE_BYTES = 1024 * 1024


class SqsQueue:
    """A queue as the server knows it."""

    def __init__(self, record: SqsRecord, partitions: Sequence[QueuePartition], throttle: QueueThrottle) -> None:
        self.name = record.name
        self.fifo = record.attributes.fifo_queue
        """Whether groups keep their order."""
        self.partitions = tuple(partitions)
        self.incarnation = partitions[0].stream.id
        """The identity of this queue; one deleted and made anew under the same name has another."""
        self.throttle = throttle
        self.put_record(record)
        self.waiters = Waiters(self._has_ready)
        self.attempts = ReceiveAttempts()
        self.purged_ms: int | None = None
        self._next_partition = 0
        self._surely_free = 0
        for partition in self.partitions:
            partition.queue.on_ready = self.waiters.wake_one

    def put_record(self, record: SqsRecord) -> None:
        """Put other settings in force; what decides where messages are never changes."""
        self.record = record
        self.attributes = record.attributes
        self.throttled = not record.attributes.throttles.off

    def partition_for(self, group: str) -> QueuePartition:
        """Where messages of a group are, for ever."""
        if len(self.partitions) == 1:
            return self.partitions[0]
        return self.partitions[partition_of(group, len(self.partitions))]

    def counters(self) -> list[Counters]:
        """What each partition holds, by state."""
        return [partition.queue.counters() for partition in self.partitions]

    def in_flight(self) -> int:
        """How many messages are leased."""
        return sum(partition.queue.engine.leased for partition in self.partitions)

    async def receive(self, max_messages: int, wait_s: float, lease_ms: int) -> list[SqsDelivery]:
        """Lease messages from all partitions, starting at another one each time; one wait for all of them."""

        async def lease() -> list[SqsDelivery]:
            while True:
                taken = self.lease_now(max_messages, lease_ms)
                # Nothing is awaited while something is leased: a caller that goes away then would lose it.
                if taken or not await self._page_in():
                    return taken

        return await self.waiters.receive(lease, wait_s)

    def wants_page(self) -> bool:
        """Whether messages lie in the store that should come in."""
        return any(partition.queue.wants_page() for partition in self.partitions)

    def lease_now(self, max_messages: int, lease_ms: int) -> list[SqsDelivery]:
        """Lease what is in memory."""
        count = len(self.partitions)
        start = self._next_partition
        self._next_partition = (start + 1) % count
        deliveries: list[SqsDelivery] = []
        room = min(max_messages, self._free_leases(max_messages))
        if room <= 0:
            return deliveries
        size_bytes = 0
        for offset in range(count):
            partition = self.partitions[(start + offset) % count]
            if not partition.queue.engine.has_ready() and partition.queue.engine.next_due_ms() is None:
                continue
            entries = partition.shell.lease_now(
                partition.queue,
                room,
                max_bytes=MAX_RECEIVE_BYTES - size_bytes,
                lease_ms=lease_ms,
                first_always=not deliveries,
            )
            if not entries:
                continue
            deliveries.append(SqsDelivery(partition, entries))
            room -= len(entries)
            self._surely_free -= len(entries)
            if room <= 0:
                break
            size_bytes += held_bytes(entries)
            if size_bytes >= MAX_RECEIVE_BYTES:
                break
        return deliveries

    def _free_leases(self, wanted: int) -> int:
        """How many messages may be leased before too many are in flight, at least; exact when that is few."""
        if self._surely_free < wanted:
            self._surely_free = MAX_IN_FLIGHT - self.in_flight()
        return self._surely_free

    async def _page_in(self) -> bool:
        """Read on in the partitions whose window has run out; False when there was nothing to read."""
        wanting = [partition for partition in self.partitions if partition.queue.wants_page()]
        if not wanting:
            return False
        return any(await asyncio.gather(*(partition.shell.page_in(partition.queue) for partition in wanting)))

    def _has_ready(self) -> bool:
        return any(partition.queue.engine.has_ready() for partition in self.partitions)


def queue_policy(attributes: QueueAttributes, *, has_dead_letter_queue: bool) -> QueuePolicy:
    """A queue's settings in the words of the engine."""
    redrive = attributes.redrive_policy
    return QueuePolicy(
        grouping=Grouping.BATCH if attributes.fifo_queue else Grouping.NONE,
        lease_ms=attributes.visibility_timeout * 1000,
        retention_ms=attributes.message_retention_period * 1000,
        max_deliveries=redrive.max_receive_count if redrive is not None and has_dead_letter_queue else None,
        dead_letter_at=DeadLetterAt.RECEIVE,
        max_in_flight=MAX_IN_FLIGHT,
        late_ack=not attributes.fifo_queue,
    )
