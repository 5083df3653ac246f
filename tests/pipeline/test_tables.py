"""The tables as DataFrames: whole, pruned, filtered and streaming, and never with the password."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from penstock.domain.errors import InvalidArgument
from penstock.domain.job import Attempt, NewJob
from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.deliveries import DeliveryLease, Done, EndedDelivery
from penstock.events.store.repository.lanes import LaneOwner
from penstock.spark.database import SparkDatabase
from penstock.spark.schemas import ATTEMPTS, EVENTS, JOBS, SUBSCRIPTIONS
from penstock.spark.sources.table_source import registered
from penstock.spark.tables import Tables
from tests.rigs.job_database import NOW_MS, add_attempts, events, execute, with_repository
from tests.rigs.jobs import begin_all, finish_all, unlimited

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]
SECRET = "a-secret-nobody-sees"


async def fill(jobs: JobRepository) -> None:
    """Four jobs: delivered and archived, in ERROR, READY, and for later; two events, one fanned out; a subscription."""
    subscription = Subscription(id="s1", name="n1", pattern="orders:*", target="https://a.example", paused=True)
    await jobs.add_subscription(subscription)
    await jobs.publish(events("e1", data=b"\x00\xff", attributes={"k": "é"}), [], NOW_MS)
    await jobs.add_events(events("e2"))
    made = [
        NewJob(id=name, target="https://a.example", created_at_ms=NOW_MS, group=name, mode=DispatchMode.NEXT_ON_ERROR)
        for name in ("done", "failed", "ready")
    ]
    later = NewJob(id="later", target="https://a.example", created_at_ms=NOW_MS, scheduled_for_ms=NOW_MS + 10**6)
    await jobs.create_jobs([*made, later], NOW_MS)
    read = {job.id: job for run in await jobs.lanes.read(NOW_MS, 10, unlimited(), 1) for job in run.jobs}
    for name, done in (("done", Done(JobStatus.COMPLETED)), ("failed", Done(JobStatus.ERROR))):
        await jobs.lanes.mark_published([read[name]], {}, LaneOwner("me"), NOW_MS, NOW_MS + 1000)
        await begin_all(jobs, [name], DeliveryLease(NOW_MS, NOW_MS + 1000))
        outcome = AttemptOutcome.DELIVERED if name == "done" else AttemptOutcome.REFUSED
        attempt = Attempt(number=1, outcome=outcome, at_ms=NOW_MS, duration_ms=3, status_code=200, response="é")
        await finish_all(jobs, [EndedDelivery(name, attempt, done, NOW_MS if name == "done" else NOW_MS + 5)])
    await jobs.archive_finished(NOW_MS + 1, NOW_MS + 1, 10)


@pytest.fixture
def tables(spark: SparkSession, database: SparkDatabase) -> Tables:
    with_repository(database, fill)
    return Tables(spark, database, splits=3)


def rows(frame: DataFrame) -> dict[str, dict[str, Any]]:
    return {row[0]: row.asDict() for row in frame.collect()}


def test_all_tables_are_read_with_the_values_they_have(tables: Tables) -> None:
    frames = {
        "events": (tables.events(), EVENTS),
        "jobs": (tables.jobs(), JOBS),
        "attempts": (tables.attempts(), ATTEMPTS),
        "subscriptions": (tables.subscriptions(), SUBSCRIPTIONS),
    }
    for name, (frame, schema) in frames.items():
        assert [(field.name, field.dataType) for field in frame.schema] == [
            (field.name, field.dataType) for field in schema
        ], name
    read = {name: rows(frame) for name, (frame, _) in frames.items()}

    assert {name: row["status"] for name, row in read["jobs"].items()} == {
        "done": "COMPLETED",
        "failed": "ERROR",
        "ready": "PENDING",
        "later": "PENDING",
    }
    assert read["jobs"]["failed"]["mode"] == "NEXT_ON_ERROR"
    assert read["jobs"]["failed"]["group_key"] == "DISPATCH_JOB:failed"
    assert read["events"]["e1"]["data"] == b"\x00\xff"
    assert read["events"]["e1"]["attributes"] == '{"k":"é"}'
    assert 0 < read["events"]["e1"]["position"] < read["events"]["e2"]["position"]
    assert {name: row["outcome"] for name, row in read["attempts"].items()} == {
        "done": "DELIVERED",
        "failed": "REFUSED",
    }
    assert read["attempts"]["done"]["response"] == "é"
    assert read["subscriptions"]["s1"]["paused"] is True
    assert read["subscriptions"]["s1"]["pattern"] == "orders:*"


def test_columns_and_filters_are_left_to_the_database(tables: Tables) -> None:
    frame = tables.jobs(["id", "status"]).where((col("status") == "PENDING") & (col("id") >= "m"))

    assert rows(frame) == {"ready": {"id": "ready", "status": "PENDING"}}
    plan = _plan(frame, "simple")
    assert "target" not in plan
    # Spark has nothing left to filter.
    assert not re.search(r"\bFilter\b", plan)
    assert tables.attempts().where(col("at_ms") >= NOW_MS + 1).count() == 0
    assert tables.jobs().where(col("status").like("PEND%")).count() == 2


def test_subscriptions_are_read_anew_by_every_action(tables: Tables, database: SparkDatabase) -> None:
    frame = tables.subscriptions()
    assert rows(frame)["s1"]["paused"]

    with_repository(database, lambda jobs: jobs.resume_subscription("s1"))

    assert not rows(frame)["s1"]["paused"]


def test_a_stream_reads_what_comes_and_goes_on_where_it_stood(
    spark: SparkSession, database: SparkDatabase, tmp_path: Path
) -> None:
    tables = Tables(spark, database)
    batches: list[list[str]] = []

    def keep(batch: DataFrame, _: int) -> None:
        batches.append([row.job_id for row in batch.orderBy("position", "job_id").collect()])

    def run() -> list[list[str]]:
        batches.clear()
        stream = tables.attempt_stream(most_rows=3).writeStream.foreachBatch(keep)
        query = stream.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True).start()
        assert query.awaitTermination(180)
        return [batch for batch in batches if batch]

    add_attempts(database, "a", "b")
    add_attempts(database, "c", "d", "e")
    assert run() == [["a", "b", "c"], ["d", "e"]]
    assert run() == []
    add_attempts(database, "f")
    assert run() == [["f"]]


def test_events_come_as_a_stream_until_they_are_fanned_out(
    spark: SparkSession, database: SparkDatabase, tmp_path: Path
) -> None:
    with_repository(database, fill)
    seen: list[str] = []
    stream = (
        spark.readStream.format(registered(spark, database))
        .option("table", "events")
        .load()
        .writeStream.foreachBatch(lambda batch, _: seen.extend(row.id for row in batch.collect()))
    )
    query = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()

    assert query.awaitTermination(180)
    assert seen == ["e2"]


def test_no_plan_and_no_error_shows_the_password(spark: SparkSession) -> None:
    database = SparkDatabase(f"postgresql://penstock:{SECRET}@127.0.0.1:1/jobs")
    tables = Tables(spark, database)
    frame = tables.attempts().where(col("at_ms") > 5)

    shown = [repr(database), str(database), repr(frame), frame._jdf.queryExecution().logical().toString()]
    with pytest.raises(PySparkException) as failure:
        frame.count()
    shown.append(str(failure.value))
    cause: BaseException | None = failure.value
    while cause is not None:
        shown.append(repr(cause))
        cause = cause.__cause__ or cause.__context__
    with pytest.raises(PySparkException) as failure:
        tables.subscriptions().collect()
    shown.append(str(failure.value))

    assert "127.0.0.1:1" in shown[4]
    assert "cannot connect" in shown[-1]
    assert not [text for text in shown if SECRET in text]


def test_a_readable_plan_does_not_show_the_password(spark: SparkSession, postgres_url: str) -> None:
    # This server asks no one for a password, so any will do.
    schema = "with_password"
    url = postgres_url.replace("postgres:@", f"postgres:{SECRET}@")
    assert SECRET in url
    execute(SparkDatabase(postgres_url), f"CREATE SCHEMA IF NOT EXISTS {schema}")
    database = SparkDatabase(url, schema)
    with_repository(database, fill)
    frame = Tables(spark, database).jobs()

    assert frame.count() == 4
    assert SECRET not in _plan(frame, "extended")
    execute(SparkDatabase(postgres_url), f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.parametrize(
    "url", [f"mysql://root:{SECRET}@localhost/jobs", "sqlite:jobs.db", "jobs.db", "sqlite://jobs.db"]
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="use sqlite:///") as failure:
        SparkDatabase(url)
    assert SECRET not in str(failure.value)


def test_a_batch_of_no_rows_is_refused(spark: SparkSession, sqlite_place: SparkDatabase) -> None:
    with pytest.raises(InvalidArgument, match="1 or more"):
        Tables(spark, sqlite_place).attempt_stream(most_rows=0)


def _plan(frame: DataFrame, mode: str) -> str:
    return str(frame._jdf.queryExecution().explainString(_mode(frame, mode)))


def _mode(frame: DataFrame, name: str) -> Any:
    jvm = frame.sparkSession.sparkContext._jvm
    assert jvm is not None
    return jvm.org.apache.spark.sql.execution.ExplainMode.fromString(name)
