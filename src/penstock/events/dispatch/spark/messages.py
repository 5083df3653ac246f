"""What the driver and the tasks of a round send each other: the request, the packed plan, and the reports."""

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

_PROPERTY = "penstock.dispatch.round"


class DispatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much a round takes at once; times are the scheduler's settings."""

    scheduler: SchedulerSettings = SchedulerSettings()
    most_jobs: int = 64_000
    """Jobs of one round: enough that its fixed cost is small, few enough that new jobs wait only seconds.

    A round takes what the credit of pools allows, in the order of the lanes' turns, until it has this many.
    """
    few_lanes: int = 10_000
    """The driver itself publishes while no more lanes are awake; 0 leaves all to Spark (decision 0028).
    """
    lanes_per_task: int = 64
    """Rounds of fewer lanes use fewer tasks, because distributing a little work takes longer than doing it."""
    tasks: int | None = None
    """How many tasks publish at once, a power of two; None means one per core."""
    groups_at_once: int = 400
    """Groups that one task publishes at the same time."""
    chores_every_s: float = 0.5


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """The queue and the contents of its pointers; never printed, because it has secrets."""

    queue_uri: str
    endpoint: str
    secrets: tuple[bytes, ...]
    pool: str = DEFAULT_DISPATCH_POOL
    queue_per_pool: bool = True

    def __repr__(self) -> str:
        return "Destination(…)"

    def pointers(self) -> Pointers:
        """Return the factory of pointers."""
        return Pointers(self.endpoint, AuthTokens(self.secrets), self.pool)


class TaskRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a task needs to publish its share of a round.

    The owner is the same for every attempt at the round, so that a retried task has the claims of the first.
    """

    database: SparkDatabase
    destination: Destination
    owner: LaneOwner
    settings: DispatchSettings
    until_ms: int
    """The wall-clock time after which nothing may be published, because the queue may forget what it has seen."""


class RoundSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One round. It has no secrets, because Spark shows it to people.

    It is sent with the round's Spark job and not in its plan: a number in a plan is a constant of generated code, and
    compiling that code takes longer than a round.
    """

    owner: LaneOwner
    ranges: tuple[AwakeRange, ...]
    lane_credit: int
    """How many jobs of an ordered lane may be on their way."""
    now_ms: int
    until_ms: int
    """The wall-clock time after which nothing may be published."""

    def announce(self, spark: SparkSession) -> None:
        """Send the round to the tasks of all jobs that this thread starts from now on."""
        spark.sparkContext.setLocalProperty(_PROPERTY, msgspec.json.encode(self).decode())


_decode = msgspec.json.Decoder(RoundSpec).decode


def announced() -> RoundSpec:
    """Return the announced round, in the process of a task."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(_PROPERTY)
    if text is None:
        raise RuntimeError("no round was announced to this task")
    return _decode(text)


class DispatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to the jobs of a task, or of a round."""

    claimed: int = 0
    published: int = 0
    failed: int = 0
    lag_ms: int = 0
    """How long the longest-waiting job had been due."""
    trouble: str | None = None
    """What prevents jobs from being published."""
    in_trouble: bool = False
    """Whether the whole queue fails, and not only some groups."""
    is_stale: bool = False
    """Whether another node leads."""

    def batch(self) -> pyarrow.RecordBatch:
        """Return the report as a row of REPORTS."""
        return pyarrow.RecordBatch.from_pylist([msgspec.structs.asdict(self)], schema=to_arrow_schema(REPORTS))


_TYPES = {int: LongType(), bool: BooleanType()}

REPORTS = StructType(
    [
        StructField(field.name, _TYPES.get(field.type, StringType()), nullable=field.type not in _TYPES)
        for field in msgspec.structs.fields(DispatchReport)
    ]
)


def summed(reports: Sequence[DispatchReport]) -> DispatchReport:
    """Return the report of a round from those of its tasks."""
    return DispatchReport(
        claimed=sum(report.claimed for report in reports),
        published=sum(report.published for report in reports),
        failed=sum(report.failed for report in reports),
        lag_ms=max((report.lag_ms for report in reports), default=0),
        trouble=next((report.trouble for report in reports if report.trouble), None),
        in_trouble=any(report.in_trouble for report in reports),
        is_stale=any(report.is_stale for report in reports),
    )


PACKED = StructType(
    [StructField("task", IntegerType(), nullable=False), StructField("jobs", BinaryType(), nullable=False)]
)
"""Planned rows of whole lanes as Arrow bytes, and the task that publishes them.

Moving a few large values is cheaper than a million rows of the JVM (decision 0021).
"""

# The keys and times of a lane compress well, and the JVM copies each byte several times.
_COMPRESSED = pyarrow.ipc.IpcWriteOptions(compression="lz4")
_SCHEMA = pyarrow.schema([pyarrow.field("task", pyarrow.int32()), pyarrow.field("jobs", pyarrow.binary())])


def packed(rows: pyarrow.RecordBatch, hashes: pyarrow.Array, tasks: int) -> pyarrow.RecordBatch:
    """Return rows of PACKED; a group goes to the task that is its queue partition among `tasks`, a power of two."""
    task_of = hashes.to_numpy() & (tasks - 1)
    numbers = numpy.unique(task_of)
    parts = [rows.filter(pyarrow.array(task_of == number)) for number in numbers]
    columns = [pyarrow.array(numbers, pyarrow.int32()), pyarrow.array(map(_to_bytes, parts), pyarrow.binary())]
    return pyarrow.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def spread(plan: DataFrame, tasks: int) -> DataFrame:
    """Send the jobs of each group to one task."""
    return plan.repartitionById(tasks, "task")


def unpacked(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Return the planned rows that reached a task."""
    for batch in batches:
        for jobs in batch.column("jobs"):
            yield from pyarrow.ipc.open_stream(jobs.as_buffer())


def _to_bytes(rows: pyarrow.RecordBatch) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())
