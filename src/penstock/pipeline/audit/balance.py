"""Whether the jobs of events are all there, told by sums, so that only few events need a close look.

Events are spread over buckets. Of each bucket the pairs of an event and a subscription that should have a job are put
together by exclusive or of their hashes, and so are those that have one: both give the same number, and the same count,
when the pairs are the same. Rows are summed where they are; nothing but the sums of buckets is sent anywhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

import numpy
import pyarrow
import pyarrow.compute
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, StructField, StructType

from penstock.jobs.replays import COPY_JOINT
from penstock.pipeline.audit.catalog import Catalog
from penstock.pipeline.audit.window import AuditWindow
from penstock.pipeline.fan_out.columns import EVENT_COLUMNS
from penstock.pipeline.fan_out.planning import Pairs, planner_of

BUCKETS = 4096

_WANTED = StructType(
    [
        StructField("event_id", StringType(), nullable=True),
        StructField("marks", ArrayType(LongType(), containsNull=False), nullable=False),
        StructField("is_damaged", BooleanType(), nullable=False),
    ]
)
"""An event, with the marks of the subscriptions that should have a job for it."""

_MOST_PAIRS = 200_000
_TOO_MANY = BUCKETS // 4


def bucket_of(event_id: str) -> Column:
    """The bucket of the event whose id is in a column."""
    return f.pmod(f.xxhash64(f.col(event_id)), f.lit(BUCKETS)).cast("int")


def in_buckets(rows: DataFrame, event_id: str, buckets: Sequence[int]) -> DataFrame:
    """The rows of some buckets; all rows, if there are so many that to choose is not worth while."""
    return rows if len(buckets) > _TOO_MANY else rows.where(bucket_of(event_id).isin(list(buckets)))


def unbalanced(events: DataFrame, catalog: Catalog, jobs: DataFrame, window: AuditWindow) -> list[int]:
    """The buckets of events that lack a job, have one too many, or are damaged; `events` are those of the window."""
    marks = {each: (_mark(each), since_ms) for each, since_ms in catalog.since_ms.items()}
    both = _wanted(events, catalog.packed, marks, window.future_ms).unionAll(_made(jobs, marks, window))
    sums = both.groupBy(bucket_of("event_id").alias("bucket")).agg(
        f.bit_xor(f.xxhash64("event_id", "mark")).alias("pairs"),
        f.sum("count").alias("count"),
        f.max("is_damaged").alias("is_damaged"),
    )
    differs = (f.col("pairs") != 0) | (f.col("count") != 0) | f.col("is_damaged")
    return [row["bucket"] for row in sums.where(differs).select("bucket").collect()]


def _wanted(events: DataFrame, packed: bytes, marks: Mapping[str, tuple[int, int]], future_ms: int) -> DataFrame:
    def want(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        planner = planner_of(packed)
        known = [marks[each] for each in planner.subscription_ids]
        numbers, since_ms = numpy.array(known, numpy.int64).reshape(-1, 2).T
        for batch in batches:
            is_future = pyarrow.compute.greater(batch.column("received_ms"), future_ms).fill_null(False)
            yield _damaged(batch.filter(is_future).column("id"))
            for found in planner.pairs(batch.filter(pyarrow.compute.invert(is_future)), _MOST_PAIRS):
                yield _marked(found, numbers, since_ms)
                yield _damaged(pyarrow.array([event_id for event_id, _ in found.set_aside], pyarrow.string()))

    rows = events.select(*EVENT_COLUMNS).mapInArrow(want, _WANTED)
    # What nobody wants is nothing to sum, but a damaged event must be told of.
    marked = rows.select("event_id", "is_damaged", f.explode_outer("marks").alias("mark"))
    count = f.when(f.col("mark").isNull(), 0).otherwise(1).alias("count")
    return marked.where(f.col("mark").isNotNull() | f.col("is_damaged")).select("event_id", "mark", count, "is_damaged")


def _made(jobs: DataFrame, marks: Mapping[str, tuple[int, int]], window: AuditWindow) -> DataFrame:
    known = _catalog(jobs.sparkSession, marks)
    created = f.col("created_at_ms")
    # Replays make second jobs of the same events.
    is_first = f.col("event_id").isNotNull() & ~f.coalesce(f.col("id").contains(COPY_JOINT), f.lit(False))
    in_window = (created >= window.since_ms) & (created < window.until_ms) & (created >= f.col("since_ms"))
    pairs = jobs.where(is_first).join(f.broadcast(known), "subscription_id").where(in_window)
    return pairs.select("event_id", "mark", f.lit(-1).alias("count"), f.lit(False).alias("is_damaged"))


def _catalog(spark: SparkSession, marks: Mapping[str, tuple[int, int]]) -> DataFrame:
    rows = [(each, mark, since_ms) for each, (mark, since_ms) in marks.items()]
    return spark.createDataFrame(rows, "subscription_id string, mark long, since_ms long")


def _mark(subscription_id: str) -> int:
    """The number that stands for a subscription."""
    return int.from_bytes(blake2b(subscription_id.encode(errors="replace"), digest_size=8).digest(), signed=True)


def _marked(
    found: Pairs,
    numbers: "numpy.ndarray[tuple[int], numpy.dtype[numpy.int64]]",
    since_ms: "numpy.ndarray[tuple[int], numpy.dtype[numpy.int64]]",
) -> pyarrow.RecordBatch:
    """Events with the marks of who wanted them by then."""
    received_ms = found.events.column("received_ms").to_numpy(zero_copy_only=False)
    owed = received_ms[found.event_at] >= since_ms[found.wish_at]
    counts = numpy.bincount(found.event_at[owed], minlength=len(found.events))
    ends = numpy.concatenate(([0], numpy.cumsum(counts))).astype(numpy.int32)
    lists = pyarrow.ListArray.from_arrays(pyarrow.array(ends), pyarrow.array(numbers[found.wish_at[owed]]))
    return _batch(found.events.column("id"), lists, is_damaged=False)


def _damaged(ids: pyarrow.Array) -> pyarrow.RecordBatch:
    return _batch(ids, pyarrow.array([[]] * len(ids), pyarrow.list_(pyarrow.int64())), is_damaged=True)


def _batch(ids: pyarrow.Array, lists: pyarrow.Array, *, is_damaged: bool) -> pyarrow.RecordBatch:
    schema = to_arrow_schema(_WANTED)
    columns = [ids, lists, pyarrow.array(numpy.full(len(ids), is_damaged))]
    return pyarrow.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
