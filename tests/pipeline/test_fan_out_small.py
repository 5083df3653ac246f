"""Small batches of fan-out, which the driver does without Spark: the same jobs as the rules give, in order."""

from collections.abc import Iterator
from contextlib import closing
from threading import Event, Thread
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.domain.matching import EventFilter
from penstock.events.fan_out.rule import FanOut
from penstock.events.fan_out.spark_small import SmallBatches, SmallBatchReader
from penstock.events.fan_out.spark_task import OpenedRepository
from penstock.events.store.postgres import PostgresTransaction
from penstock.events.store.repository.jobs import insert_events
from penstock.spark.changes import DatabaseWatch
from penstock.spark.schemas import EVENTS
from penstock.spark.sources.stream_source import StreamReader
from tests.rigs.fan_out import FanOutRig, rig

__all__ = ["rig"]


@pytest.fixture
def repository(rig: FanOutRig) -> Iterator[OpenedRepository]:
    with closing(OpenedRepository(rig.database)) as opened:
        yield opened


@pytest.fixture
def small(rig: FanOutRig) -> Iterator[SmallBatchReader]:
    with closing(SmallBatchReader(rig.database, 3)) as reader:
        yield reader


def test_a_small_batch_has_the_jobs_of_the_rule_in_the_order_of_the_events(
    rig: FanOutRig, repository: OpenedRepository, small: SmallBatchReader
) -> None:
    wanting = [rig.subscribe("billing"), rig.subscribe("shipping"), rig.subscribe("others", pattern="other:**")]
    events = rig.publish(3, group="customer-1")

    assert small.fan_out(repository) == (3, 6, 0)

    expected = [job for event in events for job in FanOut(wanting).jobs(event)]
    assert {job.id for job in rig.jobs()} == {job.id for job in expected}
    of_first = [job.id for job in expected if job.subscription_id == wanting[0].id]
    assert [job_id for job_id in rig.claimed() if job_id in of_first] == of_first
    assert rig.waiting() == []
    assert small.fan_out(repository) == (0, 0, 0)


def test_a_subscription_made_between_two_batches_gets_the_later_one(
    rig: FanOutRig, repository: OpenedRepository, small: SmallBatchReader
) -> None:
    first = rig.subscribe("first")
    (before,) = rig.publish()
    small.fan_out(repository)
    second = rig.subscribe("second")
    (after,) = rig.publish()
    small.fan_out(repository)
    assert rig.pairs() == sorted([(before.id, first.id), (after.id, first.id), (after.id, second.id)])


def test_filters_read_the_data_of_events(rig: FanOutRig, repository: OpenedRepository, small: SmallBatchReader) -> None:
    large = rig.subscribe("large", filter=EventFilter(expression="data.total >= 100"))
    everything = rig.subscribe("all")
    (little,) = rig.publish(data=b'{"total": 99}')
    (much,) = rig.publish(data=b'{"total": 100}')
    (text,) = rig.publish(data=b'{"total": 100}', content_type="text/plain")

    assert small.fan_out(repository) == (3, 4, 0)

    assert rig.pairs() == sorted([(event.id, everything.id) for event in (little, much, text)] + [(much.id, large.id)])


def test_a_backlog_is_left_to_the_stream_and_its_rest_taken(
    rig: FanOutRig, repository: OpenedRepository, small: SmallBatchReader
) -> None:
    rig.subscribe()
    events = rig.publish(4)
    assert not any(small.fan_out(repository))
    assert len(rig.waiting()) == 4
    rig.ask(lambda jobs: jobs.fan_out([event.id for event in events[:2]], [], 0))
    assert small.fan_out(repository).events == 2
    assert [event_id for event_id, _ in rig.pairs()] == [event.id for event in events[2:]]


def test_a_damaged_event_is_set_aside_and_the_others_go_on(
    rig: FanOutRig, repository: OpenedRepository, small: SmallBatchReader
) -> None:
    rig.subscribe()
    before, bad, after = rig.publish(3)
    rig.run(f"UPDATE events SET attributes = '{{\"tier\": ' WHERE id = '{bad.id}'")
    assert small.fan_out(repository) == (3, 2, 1)
    assert [event_id for event_id, _ in rig.pairs()] == [before.id, after.id]
    assert [row_id for row_id, _ in rig.set_aside()] == [bad.id]
    assert rig.waiting() == []


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_an_event_whose_transaction_ends_late_is_taken_when_it_is_there(
    rig: FanOutRig, repository: OpenedRepository, small: SmallBatchReader
) -> None:
    rig.subscribe()
    late, early = rig.new_events(2)
    with psycopg.connect(rig.database.url) as session:
        session.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(rig.database.schema)))
        insert_events(PostgresTransaction(session), [late], fanned_out=False)
        rig.ask(lambda jobs: jobs.add_events([early]))
        assert small.fan_out(repository).events == 1
        assert not any(small.fan_out(repository))
    assert small.fan_out(repository).events == 1
    assert not any(small.fan_out(repository))
    assert [event_id for event_id, _ in rig.pairs()] == sorted([late.id, early.id])


def test_the_stream_waits_until_more_events_wait_than_the_driver_takes(rig: FanOutRig) -> None:
    reader = StreamReader(rig.database, "events", EVENTS, least_rows=4)
    start = reader.initialOffset()
    with closing(_Stopping(reader)):
        rig.publish(3)
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        rig.publish(1)
        assert reader.latestOffset(start, ReadAllAvailable()) != start


def test_what_is_there_is_taken_however_little_when_the_stream_ends_after_it(rig: FanOutRig) -> None:
    reader = StreamReader(rig.database, "events", EVENTS, least_rows=4)
    with closing(_Stopping(reader)):
        rig.publish(1)
        reader.prepareForTriggerAvailableNow()
        assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) != reader.initialOffset()


def test_it_goes_on_after_a_failure_and_ends_with_the_query(rig: FanOutRig, repository: OpenedRepository) -> None:
    rig.subscribe()
    rig.run("ALTER TABLE events RENAME TO hidden")
    query = _Query()
    reported: list[tuple[int, ...]] = []
    batches = SmallBatches(rig.database, 10, reported.append)
    batches.run_beside(query, repository)  # type: ignore[arg-type]
    assert batches.handled == 0
    rig.run("ALTER TABLE hidden RENAME TO events")
    (event,) = rig.publish()
    with closing(DatabaseWatch(rig.database)) as watch:
        while not rig.pairs():
            watch.wait(query.ended)
    assert [event_id for event_id, _ in rig.pairs()] == [event.id]
    while not reported:
        # It reports after the commit that was seen above.
        query.ended.wait(0.01)
    query.ended.set()
    assert (batches.handled, reported) == (1, [(1, 1, 0)])


def test_a_watch_returns_when_another_connection_commits(rig: FanOutRig) -> None:
    stopped = Event()
    with closing(DatabaseWatch(rig.database)) as watch:
        watch.wait(stopped)
        publisher = Thread(target=rig.publish)
        publisher.start()
        while not rig.waiting():
            watch.wait(stopped)
        publisher.join()


class _Query:
    """A streaming query that runs until the test ends it."""

    def __init__(self) -> None:
        self.ended = Event()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802
        return self.ended.wait(timeout)


class _Stopping:
    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def close(self) -> None:
        self._reader.stop()
