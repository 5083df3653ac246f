"""Dispatch on Spark: a backlog in PostgreSQL is published to the SQS server."""

import tempfile
import threading
import time

from pyspark.sql import SparkSession

from penstock.domain.job_state import DEFAULT_DISPATCH_POOL
from penstock.events.dispatch import SchedulerSettings
from penstock.events.dispatch.spark.messages import Destination, DispatchSettings
from penstock.events.dispatch.spark.query import DispatchQuery
from penstock.events.dispatch.spark.round import DispatchRounds
from penstock.events.store import StoredState
from penstock.spark.database import SparkDatabase
from penstock.tools.bench.pipeline.schema import PER_GROUP, Connection, connected, fill_pending, jobs_schema
from penstock.tools.bench.servers import sqs_queue

_LOOK_S = 0.02
_PATIENCE_S = 600.0


def dispatched_per_s(spark: SparkSession, url: str, jobs: int) -> float:
    """Return the jobs per second from PENDING to QUEUED, from the start of the query: claimed, published, marked."""
    with (
        jobs_schema(url, "penstock_bench_dispatch") as database,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        sqs_queue(f"{directory}/sqs", "dispatch.fifo") as queue_url,
        connected(database) as connection,
    ):
        count = fill_pending(database, groups_of(jobs))
        connection.execute("INSERT INTO pools VALUES (%s, 1000000, NULL)", (DEFAULT_DISPATCH_POOL,))
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
    """Return the number of groups in a backlog of about this many jobs."""
    return max(1, jobs // PER_GROUP)


def _rounds(database: SparkDatabase, queue_uri: str) -> DispatchRounds:
    endpoint = "http://127.0.0.1:8080/process"
    destination = Destination(queue_uri=queue_uri, endpoint=endpoint, secrets=(b"a secret of the benchmark",))
    # Nothing is delivered here: lanes do not wait for deliveries.
    settings = DispatchSettings(few_lanes=0, scheduler=SchedulerSettings(jobs_per_lane=10_000))
    return DispatchRounds(database=database, destination=destination, settings=settings)


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
