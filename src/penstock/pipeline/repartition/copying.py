"""Writing copies in order: what the target has already is passed over, however long ago it was written."""

from collections.abc import Iterable, Iterator

import msgspec

from penstock.pipeline.repartition.errors import QueueInUse
from penstock.pipeline.repartition.origin import origin_of
from penstock.pipeline.repartition.queue_access import QueueAccess
from penstock.sqs.client import SqsClient
from penstock.sqs.message_attributes import TRACE_HEADER
from penstock.sqs.model import (
    MessageAttributes,
    MessageAttributeValue,
    SendMessageBatchRequest,
    SendMessageBatchRequestEntry,
    SendMessageBatchResponse,
)

MOST_ENTRIES = 10
# Below the server's MiB, since attributes count too and are not measured here to the byte.
MOST_BYTES = 900 * 1024

_attributes = msgspec.json.Decoder(MessageAttributes).decode


class Copy(msgspec.Struct, frozen=True):
    """A message to write."""

    group: str
    dedup_id: str
    sequence: int
    body: str
    attributes: str
    trace: str | None

    @property
    def size_bytes(self) -> int:
        """About what it counts for in a batch."""
        return len(self.body) * (1 if self.body.isascii() else 4) + len(self.attributes)


def write_copies(target: QueueAccess, partition: int, copies: Iterable[Copy]) -> int:
    """Write the copies of one partition of the target that it does not have; how many they were."""
    with target.client() as client:
        marks = written_up_to(target, client, partition)
        written = 0
        for batch in batches(copy for copy in copies if copy.sequence > marks.get(copy.group, 0)):
            _send(client, target, batch)
            written += len(batch)
        return written


def written_up_to(target: QueueAccess, client: SqsClient, partition: int) -> dict[str, int]:
    """Per group the sequence of the last copy that is there: all before it were written before it.

    Not by the server's deduplication alone: it forgets after five minutes, and a task may be tried again later.
    """
    marks: dict[str, int] = {}
    for messages in target.messages(client, partition):
        for message in messages:
            origin = origin_of(message)
            if origin is None:
                raise QueueInUse(
                    f"{target.name} has a message of somebody else ({message.message_id}): "
                    "use a queue that nobody sends to yet"
                )
            marks[message.group] = max(origin.sequence, marks.get(message.group, 0))
    return marks


def batches(copies: Iterator[Copy]) -> Iterator[list[Copy]]:
    """Copies in batches that the server takes."""
    batch: list[Copy] = []
    size_bytes = 0
    for copy in copies:
        if batch and (len(batch) == MOST_ENTRIES or size_bytes + copy.size_bytes > MOST_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(copy)
        size_bytes += copy.size_bytes
    if batch:
        yield batch


def _send(client: SqsClient, target: QueueAccess, batch: list[Copy]) -> None:
    entries = [
        SendMessageBatchRequestEntry(
            id=str(number),
            message_body=copy.body,
            message_attributes=_attributes(copy.attributes),
            message_system_attributes={}
            if copy.trace is None
            else {TRACE_HEADER: MessageAttributeValue(data_type="String", string_value=copy.trace)},
            message_deduplication_id=copy.dedup_id,
            message_group_id=copy.group,
        )
        for number, copy in enumerate(batch)
    ]
    request = SendMessageBatchRequest(target.url, entries)
    answer = client.call("SendMessageBatch", request, SendMessageBatchResponse)
    if answer.failed:
        first = answer.failed[0]
        # The rest of the batch may be written; the next try passes over it.
        raise QueueInUse(f"{target.name} refused {len(answer.failed)} messages: {first.code}: {first.message}")
