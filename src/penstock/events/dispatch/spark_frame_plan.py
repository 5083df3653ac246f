"""The plan of a whole frame of jobs: the rules of `lane_plan` on a DataFrame.

One shuffle, by the queue's own hash of the group, brings all of a group to one task; there each lane is put in order.

What keeps jobs back, brought to frames of jobs that do not carry it: for plans over a whole table.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import pyarrow
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from penstock.domain.pointer import DispatchMode
from penstock.events.dispatch import spark_plan
from penstock.events.dispatch.spark_plan import BLOCKER, LANE, POSITION, group_hash


def plan(jobs: DataFrame, now_ms: int, tasks: int) -> DataFrame:
    """The jobs to publish now, each with its `task` and its `rank` in its lane, at most `share` of each lane.

    `jobs` has the columns of LANE_JOBS and `share`.
    """
    return plan_or_rest(jobs, now_ms, tasks).where("may_go").drop("may_go")


def plan_or_rest(jobs: DataFrame, now_ms: int, tasks: int) -> DataFrame:
    """The plan, and of each lane that has nothing to give one row that may not go: it can be put to sleep.

    Within a task the rows of a lane stand together, in order.
    """

    def planned(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for rows in spark_plan.whole_lanes(batches):
            yield spark_plan.planned(rows, now_ms, rows.column("share").to_numpy())

    placed = _spread(jobs, tasks).sortWithinPartitions("group_hash", *LANE, "turn")
    schema = StructType([*placed.schema, StructField("may_go", BooleanType()), StructField("rank", LongType())])
    return placed.mapInArrow(planned, schema)


def may_go(now_ms: int) -> Column:
    """Whether nothing keeps a job back (ORDER-2 to ORDER-4); never null."""

    def answer(rows: pyarrow.Array) -> pyarrow.Array:
        return spark_plan.may_go(pyarrow.RecordBatch.from_struct_array(rows), now_ms)

    # Its kind is told by the type hints; Spark's own types know only of one that is named.
    udf: Callable[..., Callable[[Column], Column]] = arrow_udf
    return udf(answer, BooleanType())(sf.struct(*spark_plan.ASKED))


def _spread(jobs: DataFrame, tasks: int) -> DataFrame:
    """Each group's rows to one task: its number is the queue's partition of the group, among `tasks` partitions."""
    placed = jobs.withColumn("task", sf.col("group_hash").bitwiseAND(tasks - 1).cast("int"))
    return placed.repartitionById(tasks, "task") if tasks > 1 else placed.coalesce(1)


class CircumstanceFrames(msgspec.Struct, frozen=True):
    """As `core.plan.Circumstances`, as frames."""

    errors: DataFrame
    """`group_key`, `sequence`, `created_at_ms` and `id` of jobs in ERROR."""
    in_flight: DataFrame
    """`group_key` of groups of which ordered jobs are being published."""
    paused: DataFrame
    """`id` of subscriptions that take nothing."""
    turns: DataFrame
    """`group_key`, `ordered` and `turn`: when lanes were served last."""


def with_circumstances(jobs: DataFrame, around: CircumstanceFrames, now_ms: int) -> DataFrame:
    """PENDING jobs with the columns of LANE_JOBS that the plan asks for."""
    ordered = sf.col("mode") != DispatchMode.IMMEDIATE.value
    placed = jobs.withColumn("ordered", ordered).withColumn("group_hash", group_hash(sf.col("group_key")))
    in_flight = around.in_flight.select("group_key").distinct().withColumn("in_flight", sf.lit(True))
    paused = around.paused.select(sf.col("id").alias("subscription_id")).distinct().withColumn("paused", sf.lit(True))
    return (
        placed.join(_blockers(placed, around.errors, now_ms), "group_key", "left")
        .join(sf.broadcast(in_flight), "group_key", "left")
        .join(sf.broadcast(paused), "subscription_id", "left")
        .join(around.turns, list(LANE), "left")
        .fillna(False, ["in_flight", "paused"])
        .fillna(0, ["turn"])
    )


def with_share(jobs: DataFrame, may_go: Column, *, most: int, per_group: int, within: Sequence[str] = ()) -> DataFrame:
    """At most `most` lanes that have something to give, those served longest ago, each with its `share` and `place`.

    `within` names columns that keep plans apart which have nothing to do with each other.
    """
    lanes = jobs.where(may_go).groupBy(*within, *LANE).agg(sf.min("turn").alias("turn"))
    line = Window.partitionBy(*within).orderBy("turn", *LANE)
    served = lanes.withColumn("place", sf.row_number().over(line)).where(sf.col("place") <= most)
    count = sf.count("*").over(Window.partitionBy(*within))
    share = sf.greatest(sf.lit(1), sf.least(sf.lit(per_group), sf.floor(sf.lit(most) / count))).cast("int")
    return jobs.join(served.withColumn("share", share).drop("turn"), [*within, *LANE])


def _blockers(jobs: DataFrame, errors: DataFrame, now_ms: int) -> DataFrame:
    """Per group the first job in ERROR, or tried before and waiting for its next attempt."""
    waits = (sf.col("delivery_count") > 0) & (sf.col("due_at_ms") > now_ms) & sf.col("ordered")
    blocking = jobs.where(waits).select("group_key", *POSITION).unionByName(errors.select("group_key", *POSITION))
    first = blocking.groupBy("group_key").agg(sf.min(sf.struct(*POSITION)).alias("first"))
    columns = (sf.col(f"first.{name}").alias(blocker) for name, blocker in zip(POSITION, BLOCKER, strict=True))
    return first.select("group_key", *columns)
