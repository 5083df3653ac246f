"""An SQS queue: its stored record, its partitions, and receiving from all of them."""

import asyncio
from collections.abc import Sequence

import msgspec

from penstock.domain.errors import FailedPrecondition, PenstockError
from penstock.domain.limits import MINUTE_MS
from penstock.domain.message import partition_of
from penstock.engine import Counters, DeadLetterAt, Grouping, QueuePolicy, Waiters, held_bytes
from penstock.sqs.queue.attributes import QueueAttributes
from penstock.sqs.queue.intents import QueueState
from penstock.sqs.queue.receipts import QueuePartition, ReceiveAttempts, SqsDelivery
from penstock.sqs.queue.throttle import QueueThrottle

MAX_IN_FLIGHT = 120_000
DEDUP_WINDOW_MS = 5 * MINUTE_MS
MAX_RECEIVE_BYTES = 1024 * 1024


class SqsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as it is stored. Every partition has a copy; the first partition's counts."""

    name: str
    attributes: QueueAttributes
    tags: dict[str, str] = {}
    created_s: int
    modified_s: int
    placement: tuple[str, ...] = ("",)
    """The database of each partition; the empty name is the server's own."""
    birth: int = 0
    """A number that no other queue has; a queue created again under the same name has another."""
    state: QueueState = QueueState.LIVE


class _Named(msgspec.Struct):
    name: str


encode_record = msgspec.json.Encoder().encode
_decode_record = msgspec.json.Decoder(SqsRecord).decode
_decode_name = msgspec.json.Decoder(_Named).decode


def decode_record(config: bytes) -> SqsRecord:
    """Return a stored queue; FailedPrecondition if it cannot be read, so that no queue is served without its limits."""
    try:
        return _decode_record(config)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FailedPrecondition(f"the settings of the queue {_name_in(config)} cannot be read: {error}") from None


def _name_in(config: bytes) -> str:
    try:
        return _decode_name(config).name
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "without a name"


def partition_name(queue_name: str, index: int) -> str:
    """Return the name of a partition's stream and queue in the engine; no queue name contains `#`."""
    return f"{queue_name}#{index}"


def deleted_name(name: str, stream_id: int) -> str:
    """Return the name of a partition that waits to be removed, so that a new queue can have the old one."""
    return f"#{stream_id}#{name}"


def is_deleted_name(name: str) -> bool:
    """Return whether a partition with this name waits to be removed."""
    return name.startswith("#")


def partition_index(name: str) -> int:
    """Return the partition's index."""
    return int(name.rpartition("#")[2])


class SqsQueue:
    """A queue in memory."""

    def __init__(
        self,
        record: SqsRecord,
        partitions: Sequence[QueuePartition],
        throttle: QueueThrottle,
        *,
        durable_leases: bool = False,
    ) -> None:
        self.name = record.name
        self._durable_leases = durable_leases
        self.fifo = record.attributes.fifo_queue
        """Whether the queue keeps the order within each group."""
        self.partitions = tuple(partitions)
        self.incarnation = partitions[0].stream.id
        """The identity of this queue; a queue created again under the same name has another."""
        self.throttle = throttle
        self.put_record(record)
        self.apply_deduplication_scope()
        self.waiters = Waiters(self._has_ready)
        self.attempts = ReceiveAttempts()
        self.hand_overs: set[asyncio.Task[None]] = set()
        """Moves of dead letters that are not durable yet."""
        self.purged_ms: int | None = None
        self._next_partition = 0
        self._surely_free = 0
        self._may_have_unread = True
        for partition in self.partitions:
            partition.queue.on_ready = self.waiters.wake_one

    def put_record(self, record: SqsRecord) -> None:
        """Put new settings into effect; those that decide where messages go never change."""
        self.record = record
        self.attributes = record.attributes
        self.throttled = not record.attributes.throttles.off
        chosen = record.attributes.durable_leases
        self.keeps_leases = self._durable_leases if chosen is None else chosen
        """Whether leases survive a crash: what hands one out or extends it is answered once that is durable."""

    def apply_deduplication_scope(self) -> None:
        """Put the DeduplicationScope into effect; an id is unique within a partition at most."""
        self.deduplicates_by_group = self.attributes.deduplicates_by_group or len(self.partitions) > 1

    def partition_for(self, group: str) -> QueuePartition:
        """Return the partition of a group, which never changes."""
        if len(self.partitions) == 1:
            return self.partitions[0]
        return self.partitions[partition_of(group, len(self.partitions))]

    def counters(self) -> list[Counters]:
        """Return the counts of each partition by state."""
        return [partition.queue.counters() for partition in self.partitions]

    def in_flight(self) -> int:
        """Return the number of leased messages."""
        return sum(partition.queue.engine.leased for partition in self.partitions)

    async def receive(self, max_messages: int, wait_s: float, lease_ms: int) -> list[SqsDelivery]:
        """Lease messages from all partitions, starting at the next one each time, with one wait for all of them."""

        async def lease() -> list[SqsDelivery]:
            while True:
                taken = self.lease_now(max_messages, lease_ms)
                # Never await while messages are leased: if the caller disconnected then, it would lose them.
                if taken or not await self._page_in():
                    return taken

        return await self.waiters.receive(lease, wait_s)

    @property
    def has_unread_leases(self) -> bool:
        """Whether handles of an earlier process may name messages that are only in the store."""
        if self._may_have_unread:
            self._may_have_unread = any(partition.queue.has_unread_leases for partition in self.partitions)
        return self._may_have_unread

    def wants_page(self) -> bool:
        """Return whether messages should be read from the store."""
        return any(partition.queue.wants_page() for partition in self.partitions)

    def lease_now(self, max_messages: int, lease_ms: int) -> list[SqsDelivery]:
        """Lease messages that are in memory; a partition that fails keeps back none of what the others gave."""
        count = len(self.partitions)
        start = self._next_partition
        self._next_partition = (start + 1) % count
        deliveries: list[SqsDelivery] = []
        room = min(max_messages, self._free_leases(max_messages))
        if room <= 0:
            return deliveries
        size_bytes = 0
        failure: PenstockError | None = None
        for offset in range(count):
            partition = self.partitions[(start + offset) % count]
            if not partition.queue.engine.has_ready() and partition.queue.engine.next_due_ms() is None:
                continue
            try:
                entries = partition.shell.lease_now(
                    partition.queue,
                    room,
                    max_bytes=MAX_RECEIVE_BYTES - size_bytes,
                    lease_ms=lease_ms,
                    first_always=not deliveries,
                )
            except PenstockError as error:
                failure = error
                continue
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
        if failure is not None and not deliveries:
            raise failure
        return deliveries

    def _free_leases(self, wanted: int) -> int:
        """Return at least how many more messages may be leased; the number is exact when it is small."""
        if self._surely_free < wanted:
            self._surely_free = MAX_IN_FLIGHT - self.in_flight()
        return self._surely_free

    async def _page_in(self) -> bool:
        """Read on in the partitions whose window is used up; return False if there was nothing to read."""
        return await self._read([partition for partition in self.partitions if partition.queue.wants_page()])

    async def read_first(self) -> None:
        """Read the first messages after a start: until then it is not known which of them are delayed."""
        await self._read([each for each in self.partitions if not each.queue.engine.held and each.queue.wants_page()])

    async def _read(self, partitions: Sequence[QueuePartition]) -> bool:
        if not partitions:
            return False
        return any(await asyncio.gather(*(partition.shell.page_in(partition.queue) for partition in partitions)))

    def is_ready(self) -> bool:
        """Return whether a receive may find a message, in memory or in the store."""
        return self._has_ready() or self.wants_page()

    def _has_ready(self) -> bool:
        return any(partition.queue.engine.has_ready() for partition in self.partitions)


def queue_policy(attributes: QueueAttributes, *, has_dead_letter_queue: bool) -> QueuePolicy:
    """Return a queue's settings as a policy of the engine."""
    redrive = attributes.redrive_policy
    return QueuePolicy(
        grouping=Grouping.BATCH if attributes.fifo_queue else Grouping.NONE,
        lease_ms=attributes.visibility_timeout * 1000,
        retention_ms=attributes.message_retention_period * 1000,
        max_deliveries=redrive.max_receive_count if redrive is not None and has_dead_letter_queue else None,
        dead_letter_at=DeadLetterAt.RECEIVE,
        max_in_flight=MAX_IN_FLIGHT,
        late_ack=not attributes.fifo_queue,
        keep_leases=True,
    )
