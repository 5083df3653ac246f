"""Where a report's facts come from: the lake, or the database of jobs."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.facts.columns import ORIGIN
from penstock.pipeline.facts.lake import Lake
from penstock.pipeline.facts.shaping import FLAW, judged, shaped
from penstock.pipeline.report.errors import LakeEmpty
from penstock.pipeline.report.span import Span
from penstock.pipeline.tables import Tables


def facts_of_lake(lake: Lake, span: Span) -> DataFrame:
    """The facts of a span's days; LakeEmpty if there is no lake yet."""
    if not lake.days():
        raise LakeEmpty
    return lake.facts(span.days)


def facts_of_database(tables: Tables, span: Span) -> DataFrame:
    """The same, made from the attempts that the database still has; all its jobs are read."""
    inside = (f.col("at_ms") >= span.since_ms) & (f.col("at_ms") < span.until_ms)
    columns = ["job_id", "number", "outcome", "at_ms", "duration_ms", "status_code", "error", "position"]
    attempts = judged(tables.attempts(columns).where(inside), span.until_ms).where(f.col(FLAW).isNull())
    jobs = tables.jobs(["id", *ORIGIN.names]).withColumnRenamed("id", "job_id")
    return shaped(attempts.join(jobs, "job_id", "left")).drop(FLAW)
