"""Planned jobs in the database: kept once, with their lanes awake, however often Spark does it."""

import msgspec
import pytest
from pyspark.sql import SparkSession

from penstock.domain.event import StoredEvent
from penstock.domain.ids import job_id_for
from penstock.domain.job_state import JobStatus
from penstock.domain.matching import Condition, EventFilter
from penstock.events.fan_out.spark_task import keep_jobs
from tests.pipeline.fan_out_worlds import frame_of, row_of
from tests.rigs.fan_out import FanOutRig, rig

__all__ = ["rig"]
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]


def keep(spark: SparkSession, rig: FanOutRig, events: list[StoredEvent], **instead: object) -> tuple[int, int, int]:
    frame = frame_of(spark, [row_of(event, **instead) for event in events])
    counts = [tuple(row) for row in keep_jobs(frame, rig.database).collect()]
    done, jobs, aside = (sum(column) for column in zip(*counts, strict=True))
    return done, jobs, aside


def test_jobs_are_those_of_the_inline_engine_and_can_be_claimed_in_order(spark: SparkSession, rig: FanOutRig) -> None:
    billing, shipping = rig.subscribe("billing", pool="SLOW"), rig.subscribe("shipping", pattern="orders:*")
    rig.subscribe("refunds", pattern="refunds:**")
    events = rig.publish(20, group="customer-1")

    assert keep(spark, rig, events) == (20, 40, 0)

    assert rig.waiting() == []
    jobs = {job.id: job for job in rig.jobs()}
    assert set(jobs) == {job_id_for(event.id, each.id) for event in events for each in (billing, shipping)}
    job = jobs[job_id_for(events[0].id, billing.id)]
    assert (job.pool, job.group_key, job.status) == ("SLOW", f"{billing.id}:customer-1", JobStatus.PENDING)
    claimed = rig.claimed()
    for subscription in (billing, shipping):
        in_order = [job_id for job_id in claimed if job_id.endswith(subscription.id)]
        assert in_order == [job_id_for(event.id, subscription.id) for event in events]


def test_what_spark_does_again_makes_nothing_twice(spark: SparkSession, rig: FanOutRig) -> None:
    rig.subscribe()
    events = rig.publish(3)
    keep(spark, rig, events)
    before = rig.jobs()
    # Made since: a batch that is repeated must not reach it with events that were done before.
    rig.subscribe("later")

    assert keep(spark, rig, events) == (0, 0, 0)

    assert rig.jobs() == before


def test_an_event_that_nobody_wants_stops_waiting(spark: SparkSession, rig: FanOutRig) -> None:
    events = rig.publish(2)

    assert keep(spark, rig, events) == (2, 0, 0)

    assert (rig.waiting(), rig.jobs()) == ([], [])


def test_a_paused_subscription_gets_its_jobs_and_they_wait(spark: SparkSession, rig: FanOutRig) -> None:
    subscription = rig.subscribe()
    rig.ask(lambda repository: repository.pause_subscription(subscription.id))
    keep(spark, rig, rig.publish(2))
    assert rig.claimed() == []

    rig.ask(lambda repository: repository.resume_subscription(subscription.id))

    assert len(rig.claimed()) == 2


def test_an_event_from_the_future_has_jobs_that_are_not_due(spark: SparkSession, rig: FanOutRig) -> None:
    rig.subscribe()
    (event,) = rig.publish()

    assert keep(spark, rig, [msgspec.structs.replace(event, received_ms=2**53)]) == (1, 1, 0)

    assert [job.due_at_ms for job in rig.jobs()] == [2**53]
    assert rig.claimed() == []


def test_damaged_events_are_recorded_with_the_reason_and_wait_no_more(spark: SparkSession, rig: FanOutRig) -> None:
    rig.subscribe(filter=EventFilter((Condition("tier", values=("gold",)),)))
    good, bad = rig.publish(2, attributes={"tier": "gold"})

    assert keep(spark, rig, [bad], attributes='{"tier": ') == (1, 0, 1)
    assert keep(spark, rig, [good]) == (1, 1, 0)

    ((row_id, reason),) = rig.set_aside()
    assert row_id == bad.id
    assert "not a JSON object of strings" in reason
    assert rig.waiting() == []
