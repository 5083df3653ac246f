"""Copies messages in order to the partitions of a new queue, and verifies that all are there.

A copy's deduplication id says which message it is a copy of. The source's own id would not do, because a backlog may
hold two messages with the same one, sent hours apart.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.domain.errors import FailedPrecondition, InvalidArgument
from penstock.events.dispatch.spark.plan import group_hash
from penstock.history.errors import QueueInUse
from penstock.history.repartition.messages import QueueAccess
from penstock.sqs import (
    TRACE_HEADER,
    MessageAttributes,
    MessageAttributeValue,
    SendMessageBatchRequest,
    SendMessageBatchRequestEntry,
    SendMessageBatchResponse,
    SnapshotMessage,
)
from penstock.sqs.client import BlockingSqsClient

_FORM = re.compile(r"(\d+)-(\d+)-(.+)")
MOST_ENTRIES = 10
# Below the server's 1 MiB, because attributes count too and are only estimated here.
MOST_BYTES = 900 * 1024
PLACE = "place"
FORMAT = "penstock_queue_copy"
_CONTENTS = ("body", "attributes", "trace")
_FIELDS = ("group", "dedup_id", "sequence", "body", "attributes", "trace")
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
        """Return its approximate size in a batch."""
        return len(self.body) * (1 if self.body.isascii() else 4) + len(self.attributes)


class CopyOrigin(msgspec.Struct, frozen=True):
    """A place in the source queue."""

    partition: int
    sequence: int
    message_id: str

    @property
    def dedup_id(self) -> str:
        """Return the deduplication id of the copy."""
        return f"{self.partition}-{self.sequence}-{self.message_id}"


def placed(source: DataFrame, count: int) -> DataFrame:
    """Return messages by target partition, one task each, in the source's order.

    A group is in one partition of the source, so the source's sequence orders it.
    """
    # A power of two, so the remainder equals the queue's own mask.
    place = (group_hash(f.col("group")) % f.lit(count)).cast("int")
    by_place = with_origin(source).withColumn(PLACE, place).repartitionById(count, PLACE)
    return by_place.sortWithinPartitions("sequence", "partition")


def with_origin(source: DataFrame) -> DataFrame:
    """Return the source's messages with the deduplication ids of their copies."""
    return source.withColumn("dedup_id", f.concat_ws("-", "partition", "sequence", "message_id"))


def copy_to(target: QueueAccess, placed: DataFrame) -> None:
    """Write placed messages that the target lacks."""

    # The credentials are part of the class and not an option, because Spark shows options in plans.
    class CopySink(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def writer(self, schema: StructType, _overwrite: bool) -> DataSourceArrowWriter:
            return CopyWriter(target)

    placed.sparkSession.dataSource.register(CopySink)
    placed.select(PLACE, *_FIELDS).write.format(FORMAT).mode("append").save()


class CopyWriter(DataSourceArrowWriter):
    """Writes to one partition of the target per task."""

    def __init__(self, target: QueueAccess) -> None:
        self._target = target

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Write one partition."""
        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is not None:
            write_copies(self._target, first.column(PLACE)[0].as_py(), _copies(first, batches))
        return WriterCommitMessage()


def _copies(first: pyarrow.RecordBatch, rest: Iterator[pyarrow.RecordBatch]) -> Iterator[Copy]:
    yield from _of(first)
    for batch in rest:
        yield from _of(batch)


def _of(batch: pyarrow.RecordBatch) -> Iterator[Copy]:
    for values in zip(*(batch.column(name).to_pylist() for name in _FIELDS), strict=True):
        yield Copy(*values)


def write_copies(target: QueueAccess, partition: int, copies: Iterable[Copy]) -> int:
    """Write the copies that a partition of the target lacks; return how many."""
    with target.client() as client:
        marks = written_up_to(target, client, partition)
        written = 0
        for batch in batches(copy for copy in copies if copy.sequence > marks.get(copy.group, 0)):
            _send(client, target, batch)
            written += len(batch)
        return written


def written_up_to(target: QueueAccess, client: BlockingSqsClient, partition: int) -> dict[str, int]:
    """Return the sequence of the last copy of each group that is there; all before it are there, too.

    The server's deduplication is not enough: it forgets after five minutes, and a task may be retried later.
    """
    marks: dict[str, int] = {}
    for messages in target.messages(client, partition):
        for message in messages:
            origin = origin_of(message)
            if origin is None:
                raise QueueInUse(
                    f"{target.name} has a message from another sender ({message.message_id}): "
                    "use a queue without other senders"
                )
            marks[message.group] = max(origin.sequence, marks.get(message.group, 0))
    return marks


def batches(copies: Iterator[Copy]) -> Iterator[list[Copy]]:
    """Return copies in batches that the server accepts."""
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


def _send(client: BlockingSqsClient, target: QueueAccess, batch: list[Copy]) -> None:
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
    try:
        answer = client.call("SendMessageBatch", request, SendMessageBatchResponse)
    except (FailedPrecondition, InvalidArgument) as error:
        # A FIFO queue refuses a batch as a whole.
        raise QueueInUse(f"{target.name} refused {len(batch)} messages: {error.message}") from error
    if answer.failed:
        first = answer.failed[0]
        # The rest of the batch may be written; the next try skips it.
        raise QueueInUse(f"{target.name} refused {len(answer.failed)} messages: {first.code}: {first.message}")


def origin_of(copy: SnapshotMessage) -> CopyOrigin | None:
    """Return where a copy came from; None if a message is not a copy."""
    found = _FORM.fullmatch(copy.dedup_id)
    return None if found is None else CopyOrigin(int(found[1]), int(found[2]), found[3])


def compared(source: DataFrame, target: DataFrame) -> DataFrame:
    """Return for each group the number of messages in each queue, and whether they are the `same` in the same order."""
    ours, theirs = digests(with_origin(source)).alias("s"), digests(target).alias("t")
    same = f.col("s.digest").eqNullSafe(f.col("t.digest")) & f.col("s.messages").eqNullSafe(f.col("t.messages"))
    return ours.join(theirs, f.col("s.group") == f.col("t.group"), "full_outer").select(
        f.coalesce("s.group", "t.group").alias("group"),
        f.coalesce("s.messages", f.lit(0)).alias("source_messages"),
        f.coalesce("t.messages", f.lit(0)).alias("target_messages"),
        same.alias("same"),
    )


def digests(messages: DataFrame) -> DataFrame:
    """Return for each group the number of messages, and a number that depends on their order and contents."""
    rank = f.row_number().over(Window.partitionBy("group").orderBy("sequence"))
    weighed = messages.select("group", f.xxhash64(rank, "dedup_id", *_CONTENTS).alias("weight"))
    # As decimals, because the sum of many 64-bit numbers may overflow.
    total: Column = f.sum(f.col("weight").cast("decimal(20,0)"))
    return weighed.groupBy("group").agg(f.count("weight").alias("messages"), total.alias("digest"))


def summary(groups: DataFrame) -> DataFrame:
    """Return one row for `compared`: `messages`, `groups`, how many groups `differ`, and the `first` of these."""
    first = f.min(f.when(~f.col("same"), f.struct("group", "source_messages", "target_messages")))
    return groups.agg(
        f.coalesce(f.sum("target_messages"), f.lit(0)).alias("messages"),
        f.count("group").alias("groups"),
        f.count_if(~f.col("same")).alias("differ"),
        first.alias("first"),
    )
