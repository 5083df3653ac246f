"""Writing copies in order: what the target has already is passed over, however long ago it was written.

Which message of the source a copy is of: its deduplication id says so.

Not the source's own deduplication id: a backlog may hold two messages with the same one, sent hours apart.

Where messages go in the new queue, and whether they are all there: pure functions of DataFrames.

The sink that copies: a write of placed messages to it sends them, each task to its partition of the target.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.history.errors import QueueInUse
from penstock.history.repartition.messages import QueueAccess
from penstock.history.replay.rounds import hash_of
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


class CopyOrigin(msgspec.Struct, frozen=True):
    """A place in the source queue."""

    partition: int
    sequence: int
    message_id: str

    @property
    def dedup_id(self) -> str:
        """The deduplication id of the copy."""
        return f"{self.partition}-{self.sequence}-{self.message_id}"


def origin_of(copy: SnapshotMessage) -> CopyOrigin | None:
    """Where a copy came from; None if a message is no copy."""
    found = _FORM.fullmatch(copy.dedup_id)
    return None if found is None else CopyOrigin(int(found[1]), int(found[2]), found[3])


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


def written_up_to(target: QueueAccess, client: BlockingSqsClient, partition: int) -> dict[str, int]:
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
    answer = client.call("SendMessageBatch", request, SendMessageBatchResponse)
    if answer.failed:
        first = answer.failed[0]
        # The rest of the batch may be written; the next try passes over it.
        raise QueueInUse(f"{target.name} refused {len(answer.failed)} messages: {first.code}: {first.message}")


PLACE = "place"

_CONTENTS = ("body", "attributes", "trace")


def with_origin(source: DataFrame) -> DataFrame:
    """The source's messages with the deduplication ids of their copies."""
    return source.withColumn("dedup_id", f.concat_ws("-", "partition", "sequence", "message_id"))


def placed(source: DataFrame, count: int) -> DataFrame:
    """Messages by the partition they go to, one task each, in the source's order.

    A group is in one partition of the source, so the source's sequence orders it.
    """
    # A power of two: the remainder is what the queue's own mask gives.
    place = (hash_of("group") % f.lit(count)).cast("int")
    by_place = with_origin(source).withColumn(PLACE, place).repartitionById(count, PLACE)
    return by_place.sortWithinPartitions("sequence", "partition")


def digests(messages: DataFrame) -> DataFrame:
    """Per group how many messages it has, and a number that another order or other contents would change."""
    rank = f.row_number().over(Window.partitionBy("group").orderBy("sequence"))
    weighed = messages.select("group", f.xxhash64(rank, "dedup_id", *_CONTENTS).alias("weight"))
    # As decimals: a sum of many 64-bit numbers may be larger than one.
    total: Column = f.sum(f.col("weight").cast("decimal(20,0)"))
    return weighed.groupBy("group").agg(f.count("weight").alias("messages"), total.alias("digest"))


def compared(source: DataFrame, target: DataFrame) -> DataFrame:
    """Per group how many messages each queue has of it, and whether they are the `same` in the same order."""
    ours, theirs = digests(with_origin(source)).alias("s"), digests(target).alias("t")
    same = f.col("s.digest").eqNullSafe(f.col("t.digest")) & f.col("s.messages").eqNullSafe(f.col("t.messages"))
    return ours.join(theirs, f.col("s.group") == f.col("t.group"), "full_outer").select(
        f.coalesce("s.group", "t.group").alias("group"),
        f.coalesce("s.messages", f.lit(0)).alias("source_messages"),
        f.coalesce("t.messages", f.lit(0)).alias("target_messages"),
        same.alias("same"),
    )


def summary(groups: DataFrame) -> DataFrame:
    """One row of `compared`: how many `messages` of how many `groups`, how many `differ`, and the `first` of these."""
    first = f.min(f.when(~f.col("same"), f.struct("group", "source_messages", "target_messages")))
    return groups.agg(
        f.coalesce(f.sum("target_messages"), f.lit(0)).alias("messages"),
        f.count("group").alias("groups"),
        f.count_if(~f.col("same")).alias("differ"),
        first.alias("first"),
    )


FORMAT = "penstock_queue_copy"

_FIELDS = ("group", "dedup_id", "sequence", "body", "attributes", "trace")


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


def copy_to(target: QueueAccess, placed: DataFrame) -> None:
    """Write placed messages that the target does not have."""

    # The credentials are part of the class, never an option: Spark shows options in plans.
    class CopySink(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def writer(self, schema: StructType, _overwrite: bool) -> DataSourceArrowWriter:
            return CopyWriter(target)

    placed.sparkSession.dataSource.register(CopySink)
    placed.select(PLACE, *_FIELDS).write.format(FORMAT).mode("append").save()


def _copies(first: pyarrow.RecordBatch, rest: Iterator[pyarrow.RecordBatch]) -> Iterator[Copy]:
    yield from _of(first)
    for batch in rest:
        yield from _of(batch)


def _of(batch: pyarrow.RecordBatch) -> Iterator[Copy]:
    for values in zip(*(batch.column(name).to_pylist() for name in _FIELDS), strict=True):
        yield Copy(*values)
