"""What is owed for an event: a job for every subscription that wanted it then, as far as that can be known."""

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.domain.event import StoredEvent
from penstock.domain.ids import TsidFactory
from penstock.domain.job import NewJob
from penstock.domain.matching import Condition, EventFilter
from penstock.domain.subscription import Subscription
from penstock.events.fan_out.rule import FanOut
from penstock.history.audit.audit import audit_frame
from penstock.history.audit.findings import AuditResult, FindingKind, result_of
from penstock.history.audit.window import CATALOG_LAG_MS, AuditWindow
from tests.pipeline.audit_frames import attempt_frame, event_frame, job_frame, subscription_frame
from tests.pipeline.audit_model import JobRow

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

T0_MS = 1_790_000_000_000
MINUTE_MS = 60_000
EVERYTHING = EventFilter()
KINDS = (("orders:created", "eu"), ("orders:created", "us"), ("carts:left", "eu"))


class _World:
    """A dozen events, a minute apart; two subscriptions of before, one of the middle, one that was changed then."""

    def __init__(self) -> None:
        ids = TsidFactory(1)
        before = T0_MS - CATALOG_LAG_MS
        europe = EventFilter((Condition("region", values=("eu",)),))
        self.middle_ms = T0_MS + 6 * MINUTE_MS
        self.orders = self._subscription(ids.next_id(before), "orders", "orders:**")
        self.europe = self._subscription(ids.next_id(before), "europe", "orders:**", europe)
        self.changed = self._subscription(ids.next_id(before), "changed", "carts:*")
        self.late = self._subscription(ids.next_id(self.middle_ms), "late", "**")
        # The lake has no data of events, so what such a subscription wanted cannot be known.
        self.large = self._subscription(ids.next_id(before), "large", "**", EventFilter(expression="data.total >= 5"))
        self.subscriptions = (self.orders, self.europe, self.changed, self.late, self.large)
        self.events = [
            StoredEvent(
                id=ids.next_id(T0_MS + number * MINUTE_MS),
                source="test",
                type=KINDS[number % 3][0],
                received_ms=T0_MS + number * MINUTE_MS,
                external_id=str(number),
                attributes={"region": KINDS[number % 3][1]},
            )
            for number in range(12)
        ]
        fan_out = FanOut(self.subscriptions)
        self.jobs = {(job.event_id, job.subscription_id): job for event in self.events for job in fan_out.jobs(event)}

    def without(self, *pairs: tuple[int, Subscription]) -> list[NewJob]:
        """The jobs except those of these events for these subscriptions."""
        gone = {(self.events[number].id, subscription.id) for number, subscription in pairs}
        assert gone <= set(self.jobs)
        return [job for pair, job in self.jobs.items() if pair not in gone]

    def _subscription(
        self, subscription_id: str, name: str, pattern: str, asked: EventFilter = EVERYTHING
    ) -> Subscription:
        return Subscription(id=subscription_id, name=name, pattern=pattern, target="https://x.example", filter=asked)


def _audited(
    spark: SparkSession, events: DataFrame, subscriptions: DataFrame, jobs: list[NewJob], window: AuditWindow
) -> AuditResult:
    rows = [
        JobRow(
            id=job.id,
            group_key=job.group_key,
            created_at_ms=job.created_at_ms,
            event_id=job.event_id,
            subscription_id=job.subscription_id,
            status="PENDING",
        )
        for job in jobs
    ]
    seen = audit_frame(events, subscriptions, job_frame(spark, rows), attempt_frame(spark, []), window)
    return result_of(seen.findings, seen.counts, window, 100)


def test_a_job_that_is_missing_is_found_unless_it_was_not_owed(spark: SparkSession) -> None:
    world = _World()
    lost = [(1, world.orders), (9, world.europe), (11, world.changed), (10, world.late)]
    not_owed = [
        (3, world.orders),  # still waits to be fanned out
        (3, world.europe),
        (2, world.changed),  # of before the change
        (0, world.late),  # of before it was made
        (6, world.late),  # within seconds after: its row may not have been there
    ]
    waiting = world.events[3].id
    events = event_frame(spark, world.events).withColumn("fanned_out", f.col("id") != waiting)
    bad = event_frame(spark, [world.events[4]], attributes="{no json").withColumn("fanned_out", f.lit(True))
    unusable = subscription_frame(spark, [world.late]).withColumn("id", f.lit("odd")).withColumn("pattern", f.lit("a:"))
    window = AuditWindow(until_ms=T0_MS + 60 * MINUTE_MS, changed_ms={world.changed.id: world.middle_ms})
    result = _audited(
        spark,
        events.unionAll(bad),
        subscription_frame(spark, world.subscriptions).unionAll(unusable),
        world.without(*lost, *not_owed),
        window,
    )
    found = [(each.event_id, each.subscription_id) for each in result.findings if each.kind is FindingKind.LOST]
    expected = [(world.events[number].id, subscription.id) for number, subscription in lost]
    assert sorted(found) == sorted(expected)
    damaged = [each for each in result.findings if each.kind is FindingKind.DAMAGED]
    assert [(each.event_id, each.subscription_id) for each in damaged if "attributes" in each.detail] == [
        (world.events[4].id, None)
    ]
    assert [each.subscription_id for each in damaged if "pattern" in each.detail] == ["odd"]
    assert len(damaged) == 2


def test_an_audit_of_one_subscription_looks_at_that_one_alone(spark: SparkSession) -> None:
    world = _World()
    window = AuditWindow(until_ms=T0_MS + 60 * MINUTE_MS, subscription_id=world.europe.id)
    jobs = world.without((1, world.orders), (9, world.europe))
    result = _audited(
        spark, event_frame(spark, world.events), subscription_frame(spark, world.subscriptions), jobs, window
    )
    assert [(each.kind, each.event_id) for each in result.findings] == [(FindingKind.LOST, world.events[9].id)]
    assert result.counts["PENDING"] == sum(job.subscription_id == world.europe.id for job in jobs)
