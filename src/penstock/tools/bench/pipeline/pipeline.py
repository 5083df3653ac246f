"""The pipeline on Spark: fan-out, dispatch, audit and replay in bulk, and its steady state."""

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
from penstock.tools.bench.pipeline.dispatch import dispatched_per_s
from penstock.tools.bench.pipeline.fan_out import fan_out_rates, sqlite_fan_out_per_s
from penstock.tools.bench.pipeline.lake import facts_per_s, sql_count_s
from penstock.tools.bench.pipeline.latency import PER_S, steady_state
from penstock.tools.bench.pipeline.replay import replayed_per_s
from penstock.tools.bench.pipeline.start import first_batch_s
from penstock.tools.bench.servers import postgres_server

_WARM_UP_JOBS = 5_000


class PipelineFigures(msgspec.Struct, kw_only=True):
    """What `penstock bench pipeline` reports. Spark has the heap that Penstock gives it by default, 768 MB."""

    fan_out_stored_jobs_per_s: float
    """From events to jobs in PostgreSQL, by the streaming job; 5 of 1,000 subscriptions match each event."""
    fan_out_sqlite_jobs_per_s: float
    """The same on SQLite."""
    fan_out_loop_jobs_per_s: float
    """The same on PostgreSQL by a loop in Python, without Spark, that stores in the same way."""
    fan_out_jobs_per_s: float
    """`fan_out_stored_jobs_per_s` by its earlier name."""
    fan_out_vs_inserts: float
    """That over PostgreSQL's own rate: as many jobs and lanes inserted from `generate_series`, in turns."""
    dispatch_jobs_per_s: float
    """Jobs, 20 in a group, claimed, published to Penstock's SQS server (FIFO, durable on SQLite), and marked QUEUED."""
    audit_rows_per_s: float
    """Attempts of a clean history in Parquet, with their jobs and events."""
    replay_per_s: float
    """Jobs in PostgreSQL delivered again by Spark's tasks, signed, with their attempts recorded."""
    facts_rows_per_s: float
    """Attempts in PostgreSQL written to the lake's Delta tables, with names, keys and sizes."""
    sql_count_10m_s: float
    """Seconds of a count by subscription and outcome over 10 million deliveries in the lake."""
    latency_p50_ms: float
    """From the publication of an event to its POST at the subscriber at 100 events/s, by `penstock up` with Spark."""
    latency_p99_ms: float
    """The same."""
    start_s: float
    """From the start of a process to the end of its first micro-batch, with `local[*]`."""
    jvm_mb: float
    """Memory of Spark's JVM after the steady state."""


class PipelineSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The amounts that each part is measured with."""

    events: int
    jobs: int
    attempts: int
    replays: int
    facts: int
    deliveries: int
    seconds: int


def bench_pipeline(
    rounds: int, sizes: PipelineSizes, database_url: str | None, tell: Callable[[str], None]
) -> PipelineFigures:
    """Measure everything; `tell` is called with what is being measured."""
    # First, while this process has no JVM of its own.
    tell(f"the start of Spark up to the first micro-batch ({rounds} times)")
    start_s = statistics.median(_start_s() for _ in range(rounds))
    tell(f"the latency of {PER_S} events/s through everything, for {sizes.seconds} s after a warm-up")
    with _directory() as directory:
        steady = uvloop.run(steady_state(directory, sizes.seconds, tell))
    with _directory() as directory, postgres_server(database_url, str(directory / "db")) as url, _spark() as spark:
        tell(f"fan-out of {sizes.events:,} events")
        fan_out = fan_out_rates(spark, url, directory, sizes.events, rounds)
        on_sqlite = sqlite_fan_out_per_s(spark, directory, sizes.events, rounds)
        dispatched_per_s(spark, url, _WARM_UP_JOBS)
        dispatched = []
        for number in range(rounds):
            tell(f"dispatch of {sizes.jobs:,} jobs (round {number + 1} of {rounds})")
            dispatched.append(dispatched_per_s(spark, url, sizes.jobs))
        tell(f"a replay of {sizes.replays:,} jobs")
        replayed = replayed_per_s(spark, url, sizes.replays, rounds)
        tell(f"facts of {sizes.facts:,} attempts")
        facts = facts_per_s(spark, url, directory, sizes.facts, rounds)
        tell(f"a question to a lake of {sizes.deliveries:,} deliveries, which are written first")
        asked_s = sql_count_s(spark, directory, sizes.deliveries, rounds)
    with _directory() as directory, _spark(AUDIT_SETTINGS) as spark:
        tell(f"an audit of {sizes.attempts:,} attempts, which are written first")
        audited = audited_per_s(spark, directory, sizes.attempts, rounds)
    return PipelineFigures(
        fan_out_stored_jobs_per_s=fan_out.jobs_per_s,
        fan_out_sqlite_jobs_per_s=on_sqlite,
        fan_out_loop_jobs_per_s=fan_out.loop_jobs_per_s,
        fan_out_jobs_per_s=fan_out.jobs_per_s,
        fan_out_vs_inserts=fan_out.vs_inserts,
        dispatch_jobs_per_s=statistics.median(dispatched),
        audit_rows_per_s=audited,
        replay_per_s=replayed,
        facts_rows_per_s=facts,
        sql_count_10m_s=asked_s,
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
