"""The audit of a database in which real deliveries were made, on both databases."""

import pytest
from pyspark.sql import SparkSession

from penstock.domain.job_state import JobStatus
from penstock.domain.matching import EventFilter
from penstock.events.fan_out.rule import FanOut
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.changes import KeptChange
from penstock.history.audit.audit import audit_database
from penstock.history.audit.findings import FindingKind
from penstock.history.audit.window import CATALOG_LAG_MS, AuditWindow
from penstock.http.change import Change
from tests.rigs.fan_out import FanOutRig, rig
from tests.rigs.jobs import JobRig

__all__ = ["rig"]

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

EVENTS = 9


class _Lived:
    """What a small history left: three keys, of which one fails for a while and one for good."""

    def __init__(self) -> None:
        self.subscription_id = ""
        self.job_ids: list[str] = []
        self.end_ms = 0

    async def live(self, repository: JobRepository) -> None:
        rig = JobRig(repository)
        subscription = rig.new_subscription()
        self.subscription_id = subscription.id
        await repository.add_subscription(subscription)
        rig.clock.advance(CATALOG_LAG_MS / 1000)
        events = [rig.new_event(group=f"key {number % 3}", external_id=str(number)) for number in range(EVENTS)]
        jobs = [job for event in events for job in FanOut([subscription]).jobs(event)]
        await repository.publish(events, jobs, rig.now_ms)
        self.job_ids = [job.id for job in jobs]
        # One whose jobs no one has made yet.
        await repository.add_events([rig.new_event(external_id="waits")])
        await self._deliver(rig)
        rig.clock.advance(1)
        self.end_ms = rig.now_ms

    async def _deliver(self, rig: JobRig) -> None:
        first, second, *_ = self.job_ids
        queued = await rig.queue_all()
        rig.clock.advance(1)
        await rig.fail_for_now(first, delay_s=5)
        await rig.fail(second)
        blocked = {*self.job_ids[0::3], *self.job_ids[1::3]}
        for job_id in queued:
            if job_id not in blocked:
                rig.clock.advance(1)
                await rig.deliver(job_id)
        rig.clock.advance(10)
        for job_id in self.job_ids[0::3]:
            if await rig.status(job_id) is not JobStatus.QUEUED:
                await rig.queue_all()
            rig.clock.advance(1)
            await rig.deliver(job_id)
        await rig.repository.archive_finished(rig.now_ms - 4000, rig.now_ms, 100)


def test_what_the_repository_lets_happen_is_clean_and_a_lost_job_is_found(spark: SparkSession, rig: FanOutRig) -> None:
    lived = _Lived()
    rig.ask(lived.live)
    window = AuditWindow(until_ms=lived.end_ms)

    result = audit_database(spark, rig.database, window)

    assert result.findings == []
    counts = result.counts
    assert (counts["COMPLETED"], counts["ERROR"]) == (6, 1)
    assert counts["QUEUED"] == 2
    assert (counts["DELIVERED"], counts["FAILED"], counts["waiting events"]) == (6, 2, 1)

    lost = lived.job_ids[3]
    for table, column in (("attempts", "job_id"), ("jobs", "id"), ("archived_jobs", "id")):
        rig.run(f"DELETE FROM {table} WHERE {column} = '{lost}'")
    result = audit_database(spark, rig.database, window)
    assert [(each.kind, each.event_id) for each in result.findings] == [(FindingKind.LOST, lost.partition("-")[0])]

    change = Change(
        who="ann",
        role="admin",
        action="PATCH /api/v1/subscriptions/{id}",
        target={"id": lived.subscription_id},
        detail="",
    )
    kept = KeptChange(id="0S898QRG1D800", at_ms=lived.end_ms, change=change)
    rig.ask(lambda repository: repository.keep_change(kept))
    assert audit_database(spark, rig.database, window).is_clean


def test_a_subscription_with_a_filter_on_the_data_misses_its_jobs_too(spark: SparkSession, rig: FanOutRig) -> None:
    lived = _LargeOnes()
    rig.ask(lived.live)
    window = AuditWindow(until_ms=lived.end_ms)
    assert audit_database(spark, rig.database, window).is_clean

    rig.run(f"DELETE FROM jobs WHERE id = '{lived.job_ids[1]}'")

    result = audit_database(spark, rig.database, window)
    assert [(each.kind, each.event_id) for each in result.findings] == [(FindingKind.LOST, lived.event_ids[1])]


class _LargeOnes:
    """A subscription wanted two of three events, by their data."""

    async def live(self, repository: JobRepository) -> None:
        rig = JobRig(repository)
        subscription = rig.new_subscription(filter=EventFilter(expression="data.total >= 5"))
        await repository.add_subscription(subscription)
        rig.clock.advance(CATALOG_LAG_MS / 1000)
        events = [rig.new_event(data=b'{"total": %d}' % total) for total in (5, 9, 4)]
        jobs = [job for event in events for job in FanOut([subscription]).jobs(event)]
        await repository.publish(events, jobs, rig.now_ms)
        rig.clock.advance(1)
        self.event_ids = [event.id for event in events]
        self.job_ids = [job.id for job in jobs]
        self.end_ms = rig.now_ms
