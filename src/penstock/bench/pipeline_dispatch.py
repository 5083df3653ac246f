"""Dispatch on Spark: a backlog in PostgreSQL planned without publishing, and one taken to the SQS server."""

import tempfile
import threading
import time

import uvloop
from pyspark.sql import DataFrame, SparkSession

from penstock.bench.pipeline_schema import PER_GROUP, Connection, connected, fill_pending, jobs_schema
from penstock.bench.rounds import median_rate
from penstock.bench.scheduler_backlog import opened
from penstock.bench.servers import sqs_queue
from penstock.edge.clock import SystemClock
from penstock.jobs.lane_claiming import AwakeRange, LaneOwner
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
        connected(database) as connection,
    ):
        count = fill_pending(database, groups_of(jobs))
        started_s = time.perf_counter()
        query = DispatchJob(_rounds(database, queue_url)).start(spark, f"{directory}/checkpoint")
        try:
            while _has_lanes(connection):
                if not query.isActive or time.perf_counter() - started_s > _PATIENCE_S:
                    raise RuntimeError(f"the jobs were not published: {query.exception() or 'it takes too long'}")
                time.sleep(_LOOK_S)
            took_s = time.perf_counter() - started_s
        finally:
            query.stop()
            _let_desk_close()
        queued = _queued(connection)
    if queued != count:
        raise RuntimeError(f"{queued:,} of {count:,} jobs were published")
    return count / took_s


def groups_of(jobs: int) -> int:
    """How many groups a backlog of about so many jobs has."""
    return max(1, jobs // PER_GROUP)


def _planned(spark: SparkSession, database: Database, most: int) -> DataFrame:
    rounds = _rounds(database, queue_uri="")
    parts = spark.sparkContext.defaultParallelism

    async def ranges() -> list[AwakeRange]:
        async with opened(database.repository()) as jobs:
            return await jobs.lanes.awake_ranges(_OWNER, most, parts)

    awake = uvloop.run(ranges())
    now_ms = SystemClock().now_ms()
    rounds.call(awake, LaneOwner(_OWNER), now_ms=now_ms, until_ms=now_ms, most=most).announce(spark)
    return rounds.planned(spark, len(awake), rounds.tasks_of(spark, sum(part.lanes for part in awake)))


def _rounds(database: Database, queue_uri: str) -> Rounds:
    endpoint = "http://127.0.0.1:8080/process"
    destination = Destination(queue_uri=queue_uri, endpoint=endpoint, secrets=(b"a secret of the benchmark",))
    return Rounds(database=database, destination=destination, settings=DispatchSettings())


def _has_lanes(connection: Connection) -> bool:
    # A lane goes with its last job, in the transaction that marks it QUEUED.
    row = connection.execute("SELECT EXISTS (SELECT 1 FROM lanes)").fetchone()
    return row is not None and bool(row[0])


def _queued(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM jobs WHERE state = %s", (int(StoredState.QUEUED),)).fetchone()
    return 0 if row is None else int(row[0])


def _let_desk_close() -> None:
    """The desk keeps house in a thread of its own until the query is gone; then its tables may go, too."""
    for thread in threading.enumerate():
        if thread.name == "dispatch-desk":
            thread.join(_PATIENCE_S)
