"""The benchmark of the pipeline measures what it says: each part looks after its own result, here with little."""

import os
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.tools.bench.pipeline import audit
from penstock.tools.bench.pipeline import fan_out as bench_fan_out
from penstock.tools.bench.pipeline.audit import SampleHistory, audited_per_s, history
from penstock.tools.bench.pipeline.dispatch import dispatched_per_s
from penstock.tools.bench.pipeline.fan_out import (
    KINDS,
    MATCHES,
    count_jobs,
    fan_out,
    fan_out_rates,
    prepare,
    python_loop,
    sqlite_fan_out_per_s,
    subscriptions,
)
from penstock.tools.bench.pipeline.lake import facts_per_s, sql_count_s
from penstock.tools.bench.pipeline.latency import jvm_kb
from penstock.tools.bench.pipeline.pipeline import PipelineFigures
from penstock.tools.bench.pipeline.replay import replayed_per_s
from penstock.tools.bench.pipeline.schema import connected, jobs_schema

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

# So many that groups have several events each.
ATTEMPTS = 80_000


def test_it_reports_these_figures() -> None:
    assert set(PipelineFigures.__struct_fields__) == {
        "fan_out_stored_jobs_per_s", "fan_out_sqlite_jobs_per_s", "fan_out_loop_jobs_per_s", "fan_out_jobs_per_s",
        "fan_out_vs_inserts", "dispatch_jobs_per_s",
        "audit_rows_per_s", "replay_per_s", "facts_rows_per_s", "sql_count_10m_s",
        "latency_p50_ms", "latency_p99_ms", "start_s", "jvm_mb",
    }  # fmt: skip


def test_fan_out_stores_five_jobs_of_each_event(spark: SparkSession, postgres_database: str, tmp_path: Path) -> None:
    wanting = subscriptions()
    assert len(wanting) == 1000
    with jobs_schema(postgres_database, "penstock_bench_fan_out") as database:
        prepare(database, 2 * KINDS)
        assert count_jobs(database) == 0
        fan_out(spark, database, tmp_path)
        with connected(database) as connection:
            stored = connection.execute("SELECT event_id, subscription_id FROM jobs").fetchall()
    of_kind = {kind: [each.id for each in wanting[kind * MATCHES : (kind + 1) * MATCHES]] for kind in range(KINDS)}
    expected = [(f"{number:013}", each) for number in range(2 * KINDS) for each in of_kind[number % KINDS]]
    assert sorted(stored) == sorted(expected)


def test_a_loop_in_python_and_fan_out_on_sqlite_store_as_many(
    spark: SparkSession, postgres_database: str, tmp_path: Path
) -> None:
    with jobs_schema(postgres_database, "penstock_bench_fan_out") as database:
        prepare(database, 2 * KINDS)
        python_loop(database)
        assert count_jobs(database) == 2 * KINDS * MATCHES
    # It refuses to give a rate if jobs are missing.
    assert sqlite_fan_out_per_s(spark, tmp_path, 2 * KINDS, rounds=1) > 0


def test_fan_out_that_loses_a_job_is_not_a_measurement(
    spark: SparkSession, postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanting = subscriptions()[1:]
    monkeypatch.setattr(bench_fan_out, "subscriptions", lambda: wanting)
    with pytest.raises(RuntimeError, match="instead of 2,000"):
        fan_out_rates(spark, postgres_database, tmp_path, 400, rounds=1)


def test_the_audited_history_is_clean_and_looked_at_whole(spark: SparkSession, tmp_path: Path) -> None:
    assert audited_per_s(spark, tmp_path, ATTEMPTS, rounds=1) > 0
    attempts = spark.read.parquet(f"{tmp_path}/attempts")
    assert attempts.count() == pytest.approx(ATTEMPTS, rel=0.001)
    assert attempts.where("number = 2").count() * 11 == pytest.approx(ATTEMPTS, rel=0.001)


def test_an_audit_that_finds_something_is_not_a_measurement(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_a_job_lost(spark: SparkSession, directory: Path, attempts: int) -> SampleHistory:
        made = history(spark, directory, attempts)
        jobs = made.jobs.where(f.col("id") != "0000000000007-0000000000001")
        return SampleHistory(made.events, made.subscriptions, jobs, made.attempts, made.until_ms)

    monkeypatch.setattr(audit, "history", with_a_job_lost)
    with pytest.raises(RuntimeError, match="LOST"):
        audited_per_s(spark, tmp_path, 1000, rounds=1)


# What is left open when a server of the benchmark has ended is its output.
def test_a_backlog_is_fanned_out_dispatched_and_replayed_whole(
    spark: SparkSession, postgres_database: str, tmp_path: Path
) -> None:
    assert fan_out_rates(spark, postgres_database, tmp_path, 400, rounds=1).jobs_per_s > 0
    assert dispatched_per_s(spark, postgres_database, 400) > 0
    assert replayed_per_s(spark, postgres_database, 200, rounds=1) > 0
    with psycopg.connect(postgres_database) as connection:
        left = connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'penstock_bench%'").fetchone()
    assert left == (0,)


def test_facts_are_written_and_asked(spark: SparkSession, postgres_database: str, tmp_path: Path) -> None:
    assert facts_per_s(spark, postgres_database, tmp_path, 400, rounds=1) > 0
    assert sql_count_s(spark, tmp_path, 5_000, rounds=1) > 0


@pytest.mark.usefixtures("spark")
def test_the_memory_of_the_jvm_is_found_among_the_descendants() -> None:
    assert 100 < jvm_kb(os.getpid()) / 1024 < 2000
    assert jvm_kb(0x7FFFFFFF) == 0
