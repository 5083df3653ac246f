"""Dispatch on Spark: a backlog in PostgreSQL planned without publishing, and one taken to the SQS server."""

import tempfile
import threading
import time
from collections.abc import Iterable, Iterator

import pyarrow
import uvloop
from pyspark.sql import SparkSession

from penstock.edge.clock import SystemClock
from penstock.events.dispatch.spark.messages import Destination, DispatchReport, DispatchSettings, TaskRequest
from penstock.events.dispatch.spark.query import DispatchQuery
from penstock.events.dispatch.spark.round import DispatchRounds, Work
from penstock.events.dispatch.spark.task import publish_planned
from penstock.events.store import AwakeRange, LaneOwner, StoredState
from penstock.spark.database import SparkDatabase
from penstock.tools.bench.pipeline.schema import PER_GROUP, Connection, connected, fill_pending, jobs_schema
from penstock.tools.bench.scheduler_backlog import opened
from penstock.tools.bench.servers import median_rate, sqs_queue

_OWNER = "bench"
_LOOK_S = 0.02
_PATIENCE_S = 600.0


def plan_per_s(spark: SparkSession, url: str, jobs: int, rounds: int) -> float:
    """Jobs a second read from PostgreSQL, planned, and handed to the tasks of a round that publish nothing."""
    with jobs_schema(url, "penstock_bench_plan") as database:
        count = fill_pending(database, groups_of(jobs))

        def plan() -> int:
            planned = planned_jobs(spark, database, count)
            if planned != count:
                raise RuntimeError(f"{planned:,} of {count:,} jobs were planned")
            return planned

        plan()  # the first one warms up
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
        query = DispatchQuery(_rounds(database, queue_url)).start(spark, f"{directory}/checkpoint")
        try:
            while _has_lanes(connection):
                if not query.isActive or time.perf_counter() - started_s > _PATIENCE_S:
                    raise RuntimeError(f"the jobs were not published: {query.exception() or 'it takes too long'}")
                time.sleep(_LOOK_S)
            took_s = time.perf_counter() - started_s
            # A stop in the middle of a batch would cost the next measurement the workers that have it.
            while query.status["isDataAvailable"]:
                time.sleep(_LOOK_S)
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


def planned_jobs(spark: SparkSession, database: SparkDatabase, most: int) -> int:
    """How many jobs come to the tasks of one round."""
    rounds = _rounds(database, queue_uri="", work=_counted)
    parts = spark.sparkContext.defaultParallelism

    async def ranges() -> list[AwakeRange]:
        async with opened(database.repository()) as jobs:
            return await jobs.lanes.awake_ranges(_OWNER, most, parts)

    now_ms = SystemClock().now_ms()
    spec = rounds.spec(uvloop.run(ranges()), LaneOwner(_OWNER), now_ms=now_ms, until_ms=now_ms, most=most)
    return rounds.run(spark, spec).claimed


def _counted(batches: Iterable[pyarrow.RecordBatch], _: TaskRequest) -> Iterator[pyarrow.RecordBatch]:
    """What a task does instead of publishing."""
    yield DispatchReport(claimed=sum(batch.column("may_go").true_count for batch in batches)).batch()


def _rounds(database: SparkDatabase, queue_uri: str, work: Work = publish_planned) -> DispatchRounds:
    endpoint = "http://127.0.0.1:8080/process"
    destination = Destination(queue_uri=queue_uri, endpoint=endpoint, secrets=(b"a secret of the benchmark",))
    return DispatchRounds(database=database, destination=destination, settings=DispatchSettings(), work=work)


def _has_lanes(connection: Connection) -> bool:
    # A lane goes with its last job, in the transaction that marks it QUEUED. The last in turn is asked for first: to
    # find any lane, PostgreSQL would step over all that went and are not cleared away yet.
    last = connection.execute("SELECT 1 FROM lanes WHERE awake ORDER BY turn DESC LIMIT 1").fetchone()
    return last is not None or connection.execute("SELECT 1 FROM lanes LIMIT 1").fetchone() is not None


def _queued(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM jobs WHERE state = %s", (int(StoredState.QUEUED),)).fetchone()
    return 0 if row is None else int(row[0])


def _let_desk_close() -> None:
    """The desk keeps house in a thread of its own until the query is gone; then its tables may go, too."""
    for thread in threading.enumerate():
        if thread.name == "dispatch-desk":
            thread.join(_PATIENCE_S)
