"""The pipeline on Spark: fan-out, planning, dispatch, audit and replay in bulk, and its steady state."""

import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec
import uvloop
from pyspark.sql import SparkSession

from penstock.history.audit.audit import SPARK_SETTINGS as AUDIT_SETTINGS
from penstock.spark.session import SessionSettings, spark_session
from penstock.tools.bench.pipeline.audit import audited_per_s
from penstock.tools.bench.pipeline.dispatch import dispatched_per_s, plan_per_s
from penstock.tools.bench.pipeline.fan_out import fan_out_rates
from penstock.tools.bench.pipeline.latency import PER_S, steady_state
from penstock.tools.bench.pipeline.replay import replayed_per_s
from penstock.tools.bench.pipeline.start import first_batch_s
from penstock.tools.bench.servers import postgres_server

_WARM_UP_JOBS = 5_000


class PipelineFigures(msgspec.Struct, kw_only=True):
    """What `penstock bench pipeline` tells. All of Spark has the heap that Penstock gives it by default, 768 MB."""

    fan_out_jobs_per_s: float
    """Events × 1,000 subscriptions, five of which want each event, from Parquet to jobs in memory."""
    plan_jobs_per_s: float
    """PENDING jobs, 20 in a group, read from PostgreSQL, put in order and handed to tasks, which count them."""
    dispatch_jobs_per_s: float
    """A tenth as many, claimed, published to Penstock's SQS server (FIFO, durable on SQLite), and marked QUEUED."""
    audit_rows_per_s: float
    """Attempts of a clean history in Parquet, with their jobs and events."""
    replay_per_s: float
    """Jobs in PostgreSQL delivered once more by Spark's tasks, with signatures, attempts written down."""
    fan_out_vs_python: float
    """Fan-out over a plain loop of one thread that makes the same jobs of the same events, by turns."""
    latency_p50_ms: float
    """From an event's publication to its POST at the subscriber at 100 events/s, by `penstock up` with Spark."""
    latency_p99_ms: float
    """The same."""
    start_s: float
    """From the start of a process to the end of its first micro-batch, with `local[*]`."""
    jvm_mb: float
    """What Spark's JVM has in memory after the steady state."""


class PipelineSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much each part is measured with."""

    events: int
    jobs: int
    attempts: int
    replays: int
    seconds: int


def bench_pipeline(
    rounds: int, sizes: PipelineSizes, database_url: str | None, tell: Callable[[str], None]
) -> PipelineFigures:
    """Measure everything; `tell` hears what is being measured."""
    # First, while this process has no JVM of its own.
    tell(f"the start of Spark up to the first micro-batch ({rounds} times)")
    start_s = statistics.median(_start_s() for _ in range(rounds))
    tell(f"the latency of {PER_S} events/s through everything, for {sizes.seconds} s after a warm-up")
    with _directory() as directory:
        steady = uvloop.run(steady_state(directory, sizes.seconds, tell))
    with _directory() as directory, _spark() as spark:
        tell(f"fan-out of {sizes.events:,} events")
        fan_out = fan_out_rates(spark, directory, sizes.events, rounds)
    with _directory() as directory, postgres_server(database_url, str(directory)) as url, _spark() as spark:
        tell(f"a plan of {sizes.jobs:,} jobs; to write them first takes a while")
        plan = plan_per_s(spark, url, sizes.jobs, rounds)
        dispatched_per_s(spark, url, _WARM_UP_JOBS)
        dispatched = []
        for number in range(rounds):
            tell(f"dispatch of {sizes.jobs // 10:,} jobs (round {number + 1} of {rounds})")
            dispatched.append(dispatched_per_s(spark, url, sizes.jobs // 10))
        tell(f"a replay of {sizes.replays:,} jobs")
        replayed = replayed_per_s(spark, url, sizes.replays, rounds)
    with _directory() as directory, _spark(AUDIT_SETTINGS) as spark:
        tell(f"an audit of {sizes.attempts:,} attempts; to write them first takes a while")
        audited = audited_per_s(spark, directory, sizes.attempts, rounds)
    return PipelineFigures(
        fan_out_jobs_per_s=fan_out.jobs_per_s,
        plan_jobs_per_s=plan,
        dispatch_jobs_per_s=statistics.median(dispatched),
        audit_rows_per_s=audited,
        replay_per_s=replayed,
        fan_out_vs_python=fan_out.vs_python,
        latency_p50_ms=steady.p50_ms,
        latency_p99_ms=steady.p99_ms,
        start_s=start_s,
        jvm_mb=steady.jvm_mb,
    )


def _start_s() -> float:
    with _directory() as directory:
        return first_batch_s(directory)


def _spark(conf: dict[str, str] | None = None) -> AbstractContextManager[SparkSession]:
    return spark_session(SessionSettings(app_name="penstock-bench", conf=conf or {}))


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        yield Path(directory)
