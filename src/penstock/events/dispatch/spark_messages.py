"""What the tasks of one round are told: where jobs and queue are, in whose name to claim, and until when to publish.

The numbers that dispatch on Spark works by.

What the tasks of a round are told: it goes with the round's Spark job, not with its plan.

A number in a plan is a constant of the code that Spark makes of it, and to compile such code takes longer than a round.

What a task tells the driver when it is done: one row, whatever it published.

A plan on its way to the tasks that publish it: whole batches as values, so that Spark moves a few large rows.

To take a million jobs apart into rows of the JVM, sort them there, and put them together again took more of the
processor than to read them (decision 0021).
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy
import pyarrow
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StringType, StructField, StructType

from penstock.domain.job_state import DEFAULT_DISPATCH_POOL
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.process import AuthTokens
from penstock.events.store import AwakeRange, LaneOwner
from penstock.spark.database import SparkDatabase


class DispatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much at once; how long things take is the scheduler's to say."""

    scheduler: SchedulerSettings = SchedulerSettings()
    most_jobs: int = 64_000
    """Jobs of one round: so many that a round's own cost is small, so few that what comes meanwhile waits seconds.

    It takes as much of each lane as of the others, in the order of their turns, until it has so many.
    """
    most_per_lane: int = 1_000
    least_per_lane: int = 32
    """Jobs that a lane may give when it is its turn, however many lanes wait: to claim a lane and give it back costs as
    much as to publish two jobs.
    """
    lanes_per_task: int = 64
    """Rounds of fewer lanes have fewer tasks: to share little work takes longer than to do it."""
    tasks: int | None = None
    """How many tasks publish at once, a power of two; None is one per core."""
    groups_at_once: int = 400
    """Groups that one task publishes at the same time."""
    chores_every_s: float = 0.5


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """The queue, and what its pointers say; never printed, for the secrets."""

    queue_uri: str
    endpoint: str
    secrets: tuple[bytes, ...]
    pool: str = DEFAULT_DISPATCH_POOL

    def __repr__(self) -> str:
        return "Destination(…)"

    def pointers(self) -> Pointers:
        """Makes the pointers."""
        return Pointers(self.endpoint, AuthTokens(self.secrets), self.pool)


class RoundRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One round. The owner is the same for every attempt at it, so that a retried task has its predecessor's claims."""

    database: SparkDatabase
    destination: Destination
    owner: LaneOwner
    settings: DispatchSettings
    until_ms: int
    """When it is too late to publish, by the wall clock: after that the queue may forget what it has seen."""


_PROPERTY = "penstock.dispatch.round"


class RoundCall(msgspec.Struct, frozen=True, kw_only=True):
    """One round. Spark shows it to people, so it has no secrets."""

    owner: LaneOwner
    ranges: tuple[AwakeRange, ...]
    share: int
    """How many jobs a lane may give."""
    rows: int
    """How many rows are read of a range of lanes, in whole lanes."""
    now_ms: int
    until_ms: int
    """When it is too late to publish, by the wall clock."""

    def announce(self, spark: SparkSession) -> None:
        """Let the tasks of all jobs that this thread starts from now on know."""
        spark.sparkContext.setLocalProperty(_PROPERTY, msgspec.json.encode(self).decode())


_decode = msgspec.json.Decoder(RoundCall).decode


def announced() -> RoundCall:
    """What was announced, in the process of a task."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(_PROPERTY)
    if text is None:
        raise RuntimeError("no round was announced to this task")
    return _decode(text)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs of a task, or of a round."""

    claimed: int = 0
    published: int = 0
    failed: int = 0
    lag_ms: int = 0
    """For how long the job that waited longest had been due."""
    trouble: str | None = None
    """What keeps jobs from being published."""
    in_trouble: bool = False
    """Whether the queue as a whole is in trouble, and not some groups only."""
    is_stale: bool = False
    """Whether another node leads."""

    def batch(self) -> pyarrow.RecordBatch:
        """As a row of REPORTS."""
        return pyarrow.RecordBatch.from_pylist([msgspec.structs.asdict(self)], schema=to_arrow_schema(REPORTS))


_TYPES = {int: LongType(), bool: BooleanType()}
REPORTS = StructType(
    [
        StructField(field.name, _TYPES.get(field.type, StringType()), nullable=field.type not in _TYPES)
        for field in msgspec.structs.fields(Report)
    ]
)


def summed(told: Sequence[Report]) -> Report:
    """The report of a round: what its tasks told."""
    return Report(
        claimed=sum(report.claimed for report in told),
        published=sum(report.published for report in told),
        failed=sum(report.failed for report in told),
        lag_ms=max((report.lag_ms for report in told), default=0),
        trouble=next((report.trouble for report in told if report.trouble), None),
        in_trouble=any(report.in_trouble for report in told),
        is_stale=any(report.is_stale for report in told),
    )


PACKED = StructType(
    [StructField("task", IntegerType(), nullable=False), StructField("jobs", BinaryType(), nullable=False)]
)
"""Planned rows of whole lanes, and the task that publishes them."""

# Keys and times of a lane are much alike, and the JVM copies each byte several times.
_COMPRESSED = pyarrow.ipc.IpcWriteOptions(compression="lz4")
_SCHEMA = pyarrow.schema([pyarrow.field("task", pyarrow.int32()), pyarrow.field("jobs", pyarrow.binary())])


def packed(rows: pyarrow.RecordBatch, hashes: pyarrow.Array, tasks: int) -> pyarrow.RecordBatch:
    """Rows of PACKED: a group's task is the queue's partition of it, among `tasks` partitions (a power of two)."""
    task_of = hashes.to_numpy() & (tasks - 1)
    numbers = numpy.unique(task_of)
    parts = [rows.filter(pyarrow.array(task_of == number)) for number in numbers]
    columns = [pyarrow.array(numbers, pyarrow.int32()), pyarrow.array(map(_written, parts), pyarrow.binary())]
    return pyarrow.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def spread(plan: DataFrame, tasks: int) -> DataFrame:
    """Each group's jobs to one task."""
    return plan.repartitionById(tasks, "task")


def unpacked(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """The planned rows that came to a task."""
    for batch in batches:
        for jobs in batch.column("jobs"):
            yield from pyarrow.ipc.open_stream(jobs.as_buffer())


def _written(rows: pyarrow.RecordBatch) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())
