"""Read a whole queue, partition by partition, without receiving; delete it if it has not changed since."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.engine import EntryState
from penstock.sqs.actions.message_attributes import TRACE_HEADER, shown
from penstock.sqs.actions.send import GROUP_SEPARATOR
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter
from penstock.sqs.model import MessageAttributes
from penstock.sqs.queue.queue import SqsQueue
from penstock.sqs.queue.receipts import QueuePartition
from penstock.sqs.service import SqsService

MAX_MESSAGES = 1000


class SnapshotQuery(msgspec.Struct, frozen=True):
    """Which messages of a partition to show: those after a sequence number."""

    after: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_MESSAGES)] = 100


class PartitionStanding(msgspec.Struct, frozen=True):
    """The sequence numbers and counts of a partition. Any message that comes or goes changes them."""

    messages: int
    leased: int
    last_sequence: int


class QueueStanding(msgspec.Struct, frozen=True):
    """The sequence numbers and counts of all partitions of a queue."""

    partitions: list[PartitionStanding]

    @property
    def messages(self) -> int:
        """Return the number of messages in the queue."""
        return sum(partition.messages for partition in self.partitions)

    @property
    def leased(self) -> int:
        """Return the number of messages that consumers have."""
        return sum(partition.leased for partition in self.partitions)


class SnapshotMessage(msgspec.Struct, frozen=True):
    """A message with everything its sender set."""

    message_id: str
    sequence: int
    group: str
    dedup_id: str
    state: str
    body: str
    attributes: MessageAttributes
    trace: str | None


class SnapshotPage(msgspec.Struct, frozen=True):
    """Messages in order. The next page is after the sequence number `after`; it is null after the last page."""

    messages: list[SnapshotMessage]
    after: int | None


def standing(queue: SqsQueue) -> QueueStanding:
    """Return the counts of a queue, including messages that are not durable yet."""
    return QueueStanding(
        [
            PartitionStanding(partition.queue.total, partition.queue.engine.leased, partition.stream.next_seq - 1)
            for partition in queue.partitions
        ]
    )


async def snapshot(queue: SqsQueue, index: int, after: int, limit: int) -> SnapshotPage:
    """Return messages of one partition, leased or not, without changing anything."""
    if not 0 <= index < len(queue.partitions):
        raise invalid_parameter(f"{queue.name} has partitions 0 to {len(queue.partitions) - 1}, not {index}")
    messages = await _messages(queue.partitions[index], after, limit)
    return SnapshotPage(messages, messages[-1].sequence if len(messages) == limit else None)


async def retire(service: SqsService, name: str, expected: QueueStanding) -> None:
    """Delete a queue if it has not changed since it was read; else refuse."""
    async with service.catalog_lock:
        queue = service.find(name)
        # Nothing else runs between this check and the removal of the queue, so that no message can come in between.
        if standing(queue) != expected:
            raise SqsError(ErrorKind.UNSUPPORTED_OPERATION, f"{name} has changed since it was read and is not deleted")
        await service.delete(queue)


async def _messages(partition: QueuePartition, after: int, limit: int) -> list[SnapshotMessage]:
    return [
        SnapshotMessage(
            message_id=entry.message.id,
            sequence=entry.seq,
            group=entry.message.group,
            dedup_id=entry.message.dedup_id.rpartition(GROUP_SEPARATOR)[2],
            state=EntryState(entry.state).name.lower(),
            body=entry.message.body.decode(),
            attributes=shown(entry.message.attributes),
            trace=entry.message.notes.get(TRACE_HEADER),
        )
        for entry in await partition.shell.peek(partition.queue, after, limit)
    ]
