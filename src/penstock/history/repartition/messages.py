"""Reads the messages of a queue as a DataFrame, partition by partition, without receiving any."""

from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import msgspec
import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from penstock.edge.clock import SystemClock
from penstock.history.errors import CannotRepartition
from penstock.sqs import MAX_MESSAGES, QueueStanding, SnapshotMessage, SnapshotPage
from penstock.sqs.auth.signer import Signer
from penstock.sqs.client import BlockingSqsClient, SqsEndpoint

MESSAGES = StructType(
    [
        StructField("partition", IntegerType(), nullable=False),
        StructField("sequence", LongType(), nullable=False),
        StructField("message_id", StringType(), nullable=False),
        StructField("group", StringType(), nullable=False),
        StructField("dedup_id", StringType(), nullable=False),
        StructField("body", StringType(), nullable=False),
        StructField("attributes", StringType(), nullable=False),
        StructField("trace", StringType(), nullable=True),
    ]
)
"""`attributes` is JSON as SendMessage takes it."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class QueueAccess(msgspec.Struct, frozen=True):
    """A queue of Penstock's SQS server, and the admin principal to use; it can be sent to executors."""

    url: str
    signer: Signer | None = None

    def __post_init__(self) -> None:
        if not self.name.endswith(".fifo"):
            raise CannotRepartition(f"{self.name or self.url!r} is not a FIFO queue: only those have partitions")

    @property
    def name(self) -> str:
        """Return the queue's name."""
        return self.url.rpartition("/")[2]

    def beside(self, name: str) -> "QueueAccess":
        """Return another queue of the same server."""
        return QueueAccess(f"{self.url.rpartition('/')[0]}/{name}", self.signer)

    def client(self) -> BlockingSqsClient:
        """Return a connection to the server."""
        parts = urlsplit(self.url)
        return BlockingSqsClient(SqsEndpoint.parse(f"{parts.scheme}://{parts.netloc}"), SystemClock(), self.signer)

    def standing(self, client: BlockingSqsClient) -> QueueStanding:
        """Return the current state of its partitions."""
        return client.admin("GET", f"queues/{quote(self.name)}/partitions", QueueStanding)

    def retire(self, client: BlockingSqsClient, seen: QueueStanding) -> None:
        """Delete the queue if it is unchanged since it was seen; FailedPrecondition if not."""
        client.admin("POST", f"queues/{quote(self.name)}/retire", dict[str, str], body=msgspec.json.encode(seen))

    def messages(self, client: BlockingSqsClient, partition: int) -> Iterator[list[SnapshotMessage]]:
        """Return the messages of a partition in order, page by page."""
        after: int | None = 0
        path = f"queues/{quote(self.name)}/partitions/{partition}/messages"
        while after is not None:
            page = client.admin("GET", path, SnapshotPage, {"after": str(after), "limit": str(MAX_MESSAGES)})
            if page.messages:
                yield page.messages
            after = page.after


class QueueInputPartition(InputPartition):
    """One partition of a queue."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class QueueReader(DataSourceReader):
    """Reads a queue with one task per partition."""

    def __init__(self, queue: QueueAccess, partitions: int) -> None:
        self._queue = queue
        self._partitions = partitions

    def partitions(self) -> list[InputPartition]:
        """Return the partitions of the queue."""
        return [QueueInputPartition(index) for index in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Return the messages of a partition."""
        assert isinstance(partition, QueueInputPartition)
        schema = to_arrow_schema(MESSAGES)
        with self._queue.client() as client:
            for messages in self._queue.messages(client, partition.index):
                columns = zip(*(_row(partition.index, message) for message in messages), strict=True)
                yield pyarrow.RecordBatch.from_arrays(
                    [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
                    schema=schema,
                )


def messages_of(spark: SparkSession, queue: QueueAccess, partitions: int) -> DataFrame:
    """Return all messages of a queue with this number of partitions."""
    format_name = f"penstock_queue_{queue.name.removesuffix('.fifo')}"

    # The credentials are part of the class and not an option, because Spark shows options in plans.
    class QueueSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> StructType:
            return MESSAGES

        def reader(self, schema: StructType) -> DataSourceReader:
            return QueueReader(queue, partitions)

    spark.dataSource.register(QueueSource)
    return spark.read.format(format_name).load()


def _row(partition: int, message: SnapshotMessage) -> tuple[object, ...]:
    return (
        partition,
        message.sequence,
        message.message_id,
        message.group,
        message.dedup_id,
        message.body,
        _encode(message.attributes).decode(),
        message.trace,
    )
