"""Which jobs a replay takes, and which task delivers them: all jobs of a group by one task, in order."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.domain.ids import COPY_JOINT
from penstock.domain.job_state import JobStatus
from penstock.domain.order import DEFAULT_GROUP
from penstock.domain.pointer import DispatchMode
from penstock.domain.replay import ReplaySelection
from penstock.events.dispatch.spark.plan import group_hash

PART = "part"
_ON_THEIR_WAY = (JobStatus.PENDING, JobStatus.QUEUED, JobStatus.PROCESSING)
_ORIGINAL = "original"
_POSITION = ("sequence", "created_at_ms", "id")

COLUMNS = ("group_key", *_POSITION, "group_name", "subscription_id", "type", "mode", "status", "finished_at_ms")
"""What a selection needs to know of jobs."""


def selected(
    jobs: Callable[[], DataFrame], selection: ReplaySelection, as_of_ms: int, named: DataFrame | None = None
) -> DataFrame:
    """Return the jobs to deliver again: `id`, `group_key` and what orders them in it. `jobs` loads the table.

    Only jobs that were finished at `as_of_ms`, so that a replay that continues later selects the same. Of a job and its
    copies, only the last one (`domain.replay.last_copies`). `named` restricts them to jobs that a query found.
    """
    found = _finished(jobs(), selection, as_of_ms, named)
    # Grouping takes ten times as long as the scan, and most selections have no copies.
    if not _finished(jobs(), selection, as_of_ms, named).where(f.col("id").contains(COPY_JOINT)).isEmpty():
        found = _last_copies(found)
    return found.select("group_key", *_POSITION)


def on_their_way(jobs: DataFrame, selection: ReplaySelection, named: DataFrame | None = None) -> DataFrame:
    """Return the matching jobs that are not finished: they are delivered anyway and left out."""
    return matching(jobs, selection, named).where(f.col("status").isin(*_ON_THEIR_WAY)).select("id")


def originals(job_ids: DataFrame) -> DataFrame:
    """Return the jobs of a column `job_id`, or the originals of those that are copies, each once: `original`."""
    return job_ids.select(_original(f.col("job_id").cast("string")).alias(_ORIGINAL)).distinct()


def live_groups(jobs: DataFrame, chosen: DataFrame) -> DataFrame:
    """Return the groups of chosen jobs that have ordered jobs on their way: each `group_key` once.

    Jobs that wait behind a failed one are not on their way: they go when it is delivered.
    """
    status, mode = f.col("status"), f.col("mode")
    open_jobs = jobs.where(status.isin(*_ON_THEIR_WAY, JobStatus.ERROR)).where(mode != DispatchMode.IMMEDIATE.value)
    blocks = (status == JobStatus.ERROR.value) & (mode == DispatchMode.BLOCK_ON_ERROR.value)
    groups = open_jobs.groupBy("group_key").agg(
        f.max(status.isin(JobStatus.QUEUED, JobStatus.PROCESSING)).alias("moves"),
        f.max(status == JobStatus.PENDING.value).alias("waits"),
        f.max(blocks).alias("is_blocked"),
    )
    live = groups.where(f.col("moves") | (f.col("waits") & ~f.col("is_blocked"))).select("group_key")
    return live.join(chosen.select("group_key"), "group_key", "left_semi")


def matching(jobs: DataFrame, selection: ReplaySelection, named: DataFrame | None = None) -> DataFrame:
    """Return the jobs that match by time, subscription, type, key and name, whatever their status."""
    exact = {"subscription_id": selection.subscription_id, "type": selection.type, "group_key": selection.group_key}
    conditions: list[Column] = [f.col(name) == value for name, value in exact.items() if value is not None]
    if selection.from_ms is not None:
        conditions.append(f.col("created_at_ms") >= selection.from_ms)
    if selection.to_ms is not None:
        conditions.append(f.col("created_at_ms") < selection.to_ms)
    if selection.key is not None:
        of_key = f.col("group_name") == selection.key
        conditions.append(of_key | f.col("group_name").isNull() if selection.key == DEFAULT_GROUP else of_key)
    for condition in conditions:
        jobs = jobs.where(condition)
    if named is None:
        return jobs
    return jobs.join(named, _original(f.col("id")) == named[_ORIGINAL], "left_semi")


def _finished(jobs: DataFrame, selection: ReplaySelection, as_of_ms: int, named: DataFrame | None) -> DataFrame:
    finished = matching(jobs, selection, named).where(f.col("status").isin(*selection.statuses))
    finished = finished.where(f.col("finished_at_ms") <= as_of_ms)
    if selection.failed_since_ms is None:
        return finished
    return finished.where(f.col("finished_at_ms") >= selection.failed_since_ms)


def _last_copies(jobs: DataFrame) -> DataFrame:
    """Apply `domain.replay.last_copies` to a DataFrame."""
    return jobs.groupBy(_original(f.col("id")).alias(_ORIGINAL)).agg(
        *(f.max_by(name, "id").alias(name) for name in ("group_key", *_POSITION))
    )


def _original(job_id: Column) -> Column:
    return f.substring_index(job_id, COPY_JOINT, 1)


def planned(jobs: DataFrame, count: int) -> DataFrame:
    """Return `part` and `id`: each part in one partition, in the order of the jobs in their groups.

    The oldest jobs of all groups come first, so that a task soon has many groups.
    """
    in_order = (
        with_part(jobs, count).repartitionById(count, PART).sortWithinPartitions("sequence", "created_at_ms", "id")
    )
    return in_order.select(PART, "id")


def part_counts(jobs: DataFrame, count: int) -> DataFrame:
    """Return `part`, and its numbers of jobs and groups; a group is in one part only."""
    return (
        with_part(jobs, count)
        .groupBy(PART)
        .agg(f.count("id").alias("jobs"), f.count_distinct("group_key").alias("groups"))
    )


def with_part(jobs: DataFrame, count: int) -> DataFrame:
    """Return jobs with the number of the task that has their group."""
    return jobs.withColumn(PART, (group_hash(f.col("group_key")) % f.lit(count)).cast("int"))
