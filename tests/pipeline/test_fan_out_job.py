"""The streaming job on real databases: every event once, whatever happens between a write and its commit."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock.events.fan_out.spark import FannedOut, FanOutJob, FanOutSettings
from penstock.events.store.postgres import PostgresTransaction
from penstock.events.store.repository.jobs import insert_events
from tests.rigs.fan_out import FanOutRig, rig

__all__ = ["rig"]
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]
WAIT_S = 300


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def run_once(spark: SparkSession, rig: FanOutRig, checkpoint: str, tasks: int = 1) -> None:
    """All that waits, in micro-batches of at most 3,000 events."""
    with closing(FanOutJob(rig.database, FanOutSettings(once=True, most_rows=3000, tasks=tasks))) as job:
        assert job.start(spark, checkpoint).awaitTermination(WAIT_S)


def forget_last_commit(checkpoint: str) -> None:
    """As if the driver had been gone after the write, before it wrote down that the batch is done."""
    max((path for path in Path(checkpoint, "commits").iterdir() if path.name.isdigit()), key=_number).unlink()


def _number(path: Path) -> int:
    return int(path.name)


def lag(rig: FanOutRig) -> int:
    with closing(FanOutJob(rig.database)) as job:
        return job.lag()


def until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + WAIT_S
    while not condition():
        assert monotonic() < deadline
        sleep(0.05)


def test_what_waits_is_fanned_out_and_told_and_the_next_run_finds_nothing(
    spark: SparkSession, rig: FanOutRig, checkpoint: str
) -> None:
    subscription = rig.subscribe()
    events = rig.publish(3500)
    before = lag(rig)
    told: list[FannedOut] = []

    with closing(FanOutJob(rig.database, FanOutSettings(once=True, most_rows=3000), told.append)) as job:
        assert job.start(spark, checkpoint).awaitTermination(WAIT_S)
        until(lambda: len(told) >= 2)
        assert job.start(spark, checkpoint).awaitTermination(WAIT_S)

    assert [(done.events, done.jobs) for done in told if done.events] == [(3000, 3000), (500, 500)]
    assert rig.pairs() == sorted((event.id, subscription.id) for event in events)
    assert (before, lag(rig)) == (3500, 0)


def test_a_batch_that_several_tasks_share_is_fanned_out_whole(
    spark: SparkSession, rig: FanOutRig, checkpoint: str
) -> None:
    subscription = rig.subscribe()
    events = [event for number in range(4) for event in rig.publish(10, group=f"customer-{number}")]

    run_once(spark, rig, checkpoint, tasks=3)

    assert rig.pairs() == sorted((event.id, subscription.id) for event in events)


def test_a_crash_after_the_write_and_before_the_commit_makes_no_job_twice(
    spark: SparkSession, rig: FanOutRig, checkpoint: str
) -> None:
    subscription = rig.subscribe()
    events = rig.publish(10)
    run_once(spark, rig, checkpoint)
    assert len(rig.jobs()) == 10
    forget_last_commit(checkpoint)
    # Some are delivered and archived before the batch comes again, and someone else wants such events by now.
    rig.archive(rig.jobs()[:5])
    later = rig.subscribe("later")
    (last,) = rig.publish(1)

    run_once(spark, rig, checkpoint)

    assert rig.pairs() == sorted([(event.id, subscription.id) for event in (*events[5:], last)] + [(last.id, later.id)])


def test_a_crash_in_the_middle_of_the_write_loses_nothing(spark: SparkSession, rig: FanOutRig, checkpoint: str) -> None:
    # Enough jobs for several transactions of each task.
    subscriptions = [rig.subscribe(f"s{number}") for number in range(20)]
    events = rig.publish(2500)
    refuse_jobs_of(rig, events[-1].id)
    with pytest.raises(StreamingQueryException, match="no room"):
        run_once(spark, rig, checkpoint)
    assert 0 < len(rig.jobs()) < 50_000
    allow_jobs(rig)

    run_once(spark, rig, checkpoint)

    assert rig.pairs() == sorted((event.id, each.id) for event in events for each in subscriptions)
    assert rig.waiting() == []


@pytest.mark.parametrize("few_rows", [0, 100])
def test_a_subscription_made_between_micro_batches_is_seen_by_the_next(
    spark: SparkSession, rig: FanOutRig, checkpoint: str, few_rows: int
) -> None:
    first = rig.subscribe("first")
    job = FanOutJob(rig.database, FanOutSettings(trigger_ms=0, few_rows=few_rows))
    query = job.start(spark, checkpoint)
    try:
        (before,) = rig.publish()
        until(lambda: len(rig.jobs()) == 1)
        second = rig.subscribe("second")
        rig.ask(lambda repository: repository.delete_subscription(first.id))
        (after,) = rig.publish()
        until(lambda: len(rig.jobs()) == 2)
    finally:
        query.stop()
        job.close()

    assert rig.pairs() == [(before.id, first.id), (after.id, second.id)]
    assert job.handled() == (2 if few_rows else 0)


def test_a_damaged_event_among_others_is_set_aside_and_the_stream_goes_on(
    spark: SparkSession, rig: FanOutRig, checkpoint: str
) -> None:
    rig.subscribe()
    before, bad, after = rig.publish(3, data=b"x" * 1_000_000, attributes={"ключ": "\N{SNOWMAN}"})
    rig.run(f"UPDATE events SET attributes = '{{\"tier\": ' WHERE id = '{bad.id}'")

    run_once(spark, rig, checkpoint)

    assert [event_id for event_id, _ in rig.pairs()] == [before.id, after.id]
    assert [row_id for row_id, _ in rig.set_aside()] == [bad.id]
    assert rig.waiting() == []


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_an_event_whose_transaction_ends_late_is_not_passed_over(
    spark: SparkSession, rig: FanOutRig, checkpoint: str
) -> None:
    subscription = rig.subscribe()
    late, early = rig.new_events(2)
    with psycopg.connect(rig.database.url) as session:
        session.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(rig.database.schema)))
        insert_events(PostgresTransaction(session), [late], fanned_out=False)
        rig.ask(lambda repository: repository.add_events([early]))
        run_once(spark, rig, checkpoint)
        seen = rig.pairs()
        session.commit()

    run_once(spark, rig, checkpoint)

    assert late.id not in [event_id for event_id, _ in seen]
    assert rig.pairs() == sorted((event.id, subscription.id) for event in (late, early))


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_a_transaction_that_stays_open_in_another_database_does_not_stop_it(
    spark: SparkSession, rig: FanOutRig, checkpoint: str, postgres_url: str
) -> None:
    subscription = rig.subscribe()
    name = f"other_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            with psycopg.connect(postgres_url, dbname=name) as idle:
                idle.execute("SELECT pg_current_xact_id()")
                published = rig.publish(5)
                run_once(spark, rig, checkpoint)
                found = rig.pairs()
        finally:
            session.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
    assert found == sorted((event.id, subscription.id) for event in published)


def refuse_jobs_of(rig: FanOutRig, event_id: str) -> None:
    """The database refuses to keep a job of this event."""
    if rig.database.url.startswith("sqlite"):
        rig.run(
            f"CREATE TRIGGER refuse BEFORE INSERT ON jobs WHEN new.event_id = '{event_id}' "
            "BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
    else:
        rig.run(f"ALTER TABLE jobs ADD CONSTRAINT \"no room\" CHECK (event_id <> '{event_id}')")


def allow_jobs(rig: FanOutRig) -> None:
    """It refuses no more."""
    is_sqlite = rig.database.url.startswith("sqlite")
    rig.run("DROP TRIGGER refuse" if is_sqlite else 'ALTER TABLE jobs DROP CONSTRAINT "no room"')
