"""Which jobs of a frame may be published now, in which order, by which task: the rules of `core.plan` on DataFrames.

One shuffle, by the queue's own hash of the group, brings all of a group to one task; there each lane is put in order.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from penstock.core.pointer import DispatchMode
from penstock.pipeline.dispatch.lane_schema import BLOCKER, LANE, POSITION


def plan(jobs: DataFrame, now_ms: int | Column, tasks: int) -> DataFrame:
    """The jobs to publish now, each with its `task` and its `rank` in its lane, at most `share` of each lane.

    `jobs` has the columns of LANE_JOBS and `share`.
    """
    return plan_or_rest(jobs, now_ms, tasks).where("may_go").drop("may_go")


def plan_or_rest(jobs: DataFrame, now_ms: int | Column, tasks: int) -> DataFrame:
    """The plan, and of each lane that has nothing to give one row that may not go: it can be put to sleep.

    Within a task the rows of a lane stand together, in order.
    """
    place = [sf.col(name) for name in POSITION]
    # The hash first: lanes are told apart by a number, and only jobs of one group by their texts.
    lane = Window.partitionBy("group_hash", "task", *LANE).orderBy(sf.col("may_go").desc(), *place)
    ranked = _spread(jobs, tasks).withColumn("may_go", may_go(now_ms)).withColumn("rank", sf.row_number().over(lane))
    goes = sf.col("may_go") & (sf.col("rank") <= sf.col("share"))
    return ranked.where(goes | (sf.col("rank") == 1))


def may_go(now_ms: int | Column) -> Column:
    """Whether nothing keeps a job back (rulings 16 and 18); never null."""
    expires_ms = sf.col("expires_at_ms")
    is_its_time = (sf.col("due_at_ms") <= now_ms) & (expires_ms.isNull() | (expires_ms > now_ms))
    blocks = sf.col("mode") == DispatchMode.BLOCK_ON_ERROR.value
    blocker = sf.struct(*(sf.col(name).alias(place) for name, place in zip(BLOCKER, POSITION, strict=True)))
    is_before_blocker = sf.struct(*POSITION) < blocker
    is_blocked = blocks & sf.col("blocker_id").isNotNull() & ~is_before_blocker
    is_free = ~sf.col("ordered") | (~sf.col("in_flight") & ~is_blocked)
    return sf.coalesce(sf.col("id").isNotNull() & is_its_time & ~sf.col("paused") & is_free, sf.lit(False))


def _spread(jobs: DataFrame, tasks: int) -> DataFrame:
    """Each group's rows to one task: its number is the queue's partition of the group, among `tasks` partitions."""
    placed = jobs.withColumn("task", sf.col("group_hash").bitwiseAND(tasks - 1).cast("int"))
    return placed.repartitionById(tasks, "task") if tasks > 1 else placed.coalesce(1)
