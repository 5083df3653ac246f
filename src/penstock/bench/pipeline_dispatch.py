"""Dispatch on Spark: a backlog in PostgreSQL planned without publishing, and one taken to the SQS server."""

import tempfile
import time
from pathlib import Path

import uvloop
from pyspark.sql import DataFrame, SparkSession

from penstock.bench.pipeline_schema import PER_GROUP, count_jobs, fill_pending, jobs_schema
from penstock.bench.rounds import median_rate, rate_of
from penstock.bench.scheduler_backlog import opened
from penstock.bench.servers import sqs_queue
from penstock.edge.clock import SystemClock
from penstock.jobs.lane_claiming import AwakeRange
from penstock.jobs.stored_state import StoredState
from penstock.pipeline.database import Database
from penstock.pipeline.dispatch.job import DispatchJob
from penstock.pipeline.dispatch.order import Destination
from penstock.pipeline.dispatch.round import Rounds
from penstock.pipeline.dispatch.settings import DispatchSettings

_OWNER = "bench"
_LOOK_S = 0.02
_PATIENCE_S = 600.0


def plan_per_s(spark: SparkSession, url: str, jobs: int, rounds: int) -> float:
    """Jobs a second read from PostgreSQL and planned, in one round of dispatch that publishes nothing."""
    with jobs_schema(url, "penstock_bench_plan") as database:
        count = fill_pending(database, groups_of(jobs))
        warm = _planned(spark, database, count).count()
        if warm != count:
            raise RuntimeError(f"{warm:,} of {count:,} jobs were planned")

        def plan() -> int:
            _planned(spark, database, count).write.format("noop").mode("overwrite").save()
            return count

        return median_rate(rounds, plan)


def dispatched_per_s(spark: SparkSession, url: str, jobs: int) -> float:
    """Jobs a second from PENDING to QUEUED, from the start of the query on: claimed, published, and marked."""
    with (
        jobs_schema(url, "penstock_bench_dispatch") as database,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        sqs_queue(f"{directory}/sqs", "dispatch.fifo") as queue_url,
    ):
        count = fill_pending(database, groups_of(jobs))
        job = DispatchJob(_rounds(database, queue_url))

        def dispatch() -> int:
            _drain(job, spark, f"{directory}/checkpoint")
            return count

        rate = rate_of(dispatch)
        queued = count_jobs(database, StoredState.QUEUED)
        if queued != count:
            raise RuntimeError(f"{queued:,} of {count:,} jobs were published")
        return rate


def groups_of(jobs: int) -> int:
    """How many groups a backlog of about so many jobs has."""
    return max(1, jobs // PER_GROUP)
