"""Which jobs a replay takes, as DataFrames of jobs."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.domain.job_state import JobStatus
from penstock.domain.order import DEFAULT_GROUP
from penstock.events.replay import COPY_JOINT, FAILED, REPLAYABLE, ReplaySelection

_ON_THEIR_WAY = (JobStatus.PENDING, JobStatus.QUEUED, JobStatus.PROCESSING)
_POSITION = ("sequence", "created_at_ms", "id")

COLUMNS = ("group_key", *_POSITION, "group_name", "subscription_id", "status", "finished_at_ms")
"""What has to be known of jobs to select them."""


def selected(jobs: DataFrame, selection: ReplaySelection, as_of_ms: int) -> DataFrame:
    """The jobs to deliver once more: `id`, `group_key` and what orders them within it.

    Only what was over at `as_of_ms`: so a replay that goes on later selects the same.
    """
    wanted = REPLAYABLE if selection.failed_since_ms is None else FAILED
    over = fitting(jobs, selection).where(f.col("status").isin(*wanted) & (f.col("finished_at_ms") <= as_of_ms))
    if selection.failed_since_ms is not None:
        over = _last_copies(over.where(f.col("finished_at_ms") >= selection.failed_since_ms))
    return over.select("group_key", *_POSITION)


def on_their_way(jobs: DataFrame, selection: ReplaySelection) -> DataFrame:
    """The jobs that fit but are not over: they are delivered anyway, and left out."""
    return fitting(jobs, selection).where(f.col("status").isin(*_ON_THEIR_WAY)).select("id")


def fitting(jobs: DataFrame, selection: ReplaySelection) -> DataFrame:
    """The jobs that fit by time, subscription and key, whatever their status."""
    conditions: list[Column] = []
    if selection.from_ms is not None:
        conditions.append(f.col("created_at_ms") >= selection.from_ms)
    if selection.to_ms is not None:
        conditions.append(f.col("created_at_ms") < selection.to_ms)
    if selection.subscription_id is not None:
        conditions.append(f.col("subscription_id") == selection.subscription_id)
    if selection.key is not None:
        named = f.col("group_name") == selection.key
        conditions.append(named | f.col("group_name").isNull() if selection.key == DEFAULT_GROUP else named)
    if selection.failed_since_ms is None:
        # A copy has its original's time: whoever asks for a day wants what happened then, once.
        conditions.append(~f.col("id").contains(COPY_JOINT))
    for condition in conditions:
        jobs = jobs.where(condition)
    return jobs


def _last_copies(failed: DataFrame) -> DataFrame:
    """Of a job that failed and whose copies failed too, the last copy alone."""
    original = f.substring_index("id", COPY_JOINT, 1)
    return failed.groupBy(original.alias("original")).agg(
        *(f.max_by(name, "id").alias(name) for name in ("group_key", *_POSITION))
    )
