"""The plan of a whole frame of jobs: the rules of `lane_plan` on a DataFrame.

One shuffle, by the queue's own hash of the group, brings all of a group to one task; there each lane is put in order.
"""

from collections.abc import Callable, Iterable, Iterator

import pyarrow
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from penstock.pipeline.dispatch import lane_plan
from penstock.pipeline.dispatch.lane_schema import LANE


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
        for rows in lane_plan.whole_lanes(batches):
            yield lane_plan.planned(rows, now_ms, rows.column("share").to_numpy())

    placed = _spread(jobs, tasks).sortWithinPartitions("group_hash", *LANE, "turn")
    schema = StructType([*placed.schema, StructField("may_go", BooleanType()), StructField("rank", LongType())])
    return placed.mapInArrow(planned, schema)


def may_go(now_ms: int) -> Column:
    """Whether nothing keeps a job back (rulings 16 and 18); never null."""

    def answer(rows: pyarrow.Array) -> pyarrow.Array:
        return lane_plan.may_go(pyarrow.RecordBatch.from_struct_array(rows), now_ms)

    # Its kind is told by the type hints; Spark's own types know only of one that is named.
    udf: Callable[..., Callable[[Column], Column]] = arrow_udf
    return udf(answer, BooleanType())(sf.struct(*lane_plan.ASKED))


def _spread(jobs: DataFrame, tasks: int) -> DataFrame:
    """Each group's rows to one task: its number is the queue's partition of the group, among `tasks` partitions."""
    placed = jobs.withColumn("task", sf.col("group_hash").bitwiseAND(tasks - 1).cast("int"))
    return placed.repartitionById(tasks, "task") if tasks > 1 else placed.coalesce(1)
