"""The scheduler's life cycle and its table of errors (SCHED-ERROR-1), row by row, on virtual time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from penstock.domain.job import ClaimedJob
from penstock.domain.job_state import JobStatus
from penstock.domain.pointer import DispatchMode
from penstock.events.dispatch import recovery
from penstock.events.dispatch.lane_claims import LaneClaims
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.store.repository.deliveries import Done
from penstock.events.store.repository.lanes import LaneOwner
from penstock.queues.errors import InvalidPublication
from penstock.testing.virtual_loop import LoopClock, run_virtual
from tests.rigs.jobs import unlimited
from tests.rigs.scheduler import BLOCK, ENDPOINT, IMMEDIATE, NEXT, PlainTokens, SchedulerRig, comes_true, moment

POLL_S = SchedulerSettings().poll_interval_s
CLAIM_S = SchedulerSettings().claim_lease_s
QUEUED = JobStatus.QUEUED
PENDING = JobStatus.PENDING


def on(story: Callable[[SchedulerRig], Awaitable[None]]) -> None:
    """Run a story on virtual time."""

    async def main(clock: LoopClock) -> None:
        rig = SchedulerRig(clock)
        try:
            await story(rig)
        finally:
            await rig.close()

    run_virtual(main)


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def queued(rig: SchedulerRig, count: int, within_s: float = 60.0) -> None:
    await comes_true(lambda: len(rig.queue.entries) >= count, within_s)


async def has_status(rig: SchedulerRig, job_id: str, status: JobStatus) -> None:
    since_s = now_s()
    async with asyncio.timeout(60):
        while await rig.status(job_id) is not status:
            await moment(since_s)


# Life cycle


def test_a_pending_job_is_published_as_a_pointer_and_becomes_queued() -> None:
    async def story(rig: SchedulerRig) -> None:
        job_id = await rig.make("customer-12345", mode=NEXT, pool="FAST")
        scheduler = rig.start()
        await has_status(rig, job_id, QUEUED)
        (entry,) = rig.queue.entries
        assert (entry.group, entry.dedup_id) == ("DISPATCH_JOB:customer-12345", f"{job_id}:0")
        pointer = msgspec.to_builtins(entry.pointer)
        assert pointer.pop("authToken").startswith(f"{job_id}@")
        assert pointer == {
            "id": job_id,
            "mediationTarget": ENDPOINT,
            "poolCode": "FAST",
            "messageGroupId": "DISPATCH_JOB:customer-12345",
            "dispatchMode": "NEXT_ON_ERROR",
        }
        assert (scheduler.counts.claimed, scheduler.counts.published) == (1, 1)

    on(story)


def test_a_job_that_is_made_is_published_at_once_and_not_at_the_next_poll() -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.start()
        await asyncio.sleep(POLL_S * 2.5)
        started_s = now_s()
        await rig.make()
        await queued(rig, 1)
        assert now_s() - started_s < 0.1

    on(story)


def test_a_job_made_for_later_is_published_when_it_is_due() -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.start()
        due_ms = rig.clock.now_ms() + 7_300
        await rig.make(scheduled_for_ms=due_ms)
        await queued(rig, 1)
        assert 0 <= rig.clock.now_ms() - due_ms < 100

    on(story)


def test_an_idle_scheduler_asks_the_database_once_per_interval() -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.start()
        await asyncio.sleep(1)
        before = rig.database.calls
        await asyncio.sleep(20 * POLL_S)
        # Each poll reads what is due, claims, and asks when to come again; the stale poller adds a few.
        assert rig.database.calls - before <= 20 * 3 + 4

    on(story)


def test_a_backlog_is_drained_without_waiting_for_the_next_poll() -> None:
    async def story(rig: SchedulerRig) -> None:
        ids = await rig.make_all([rig.new_job(f"g{number % 70}") for number in range(3000)])
        started_s = now_s()
        rig.start()
        await queued(rig, len(ids))
        assert now_s() - started_s < POLL_S
        by_group = [[job_id for job_id in rig.queue.ids if job_id in set(ids[group::70])] for group in range(70)]
        assert by_group == [ids[group::70] for group in range(70)]

    on(story)


def test_a_job_made_while_its_lane_is_being_published_from_follows_at_once() -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.queue.latency_s = 1.0
        rig.start()
        first = await rig.make("g")
        await comes_true(lambda: len(rig.queue.calls) == 1)
        second = await rig.make("g")
        await has_status(rig, first, QUEUED)
        started_s = now_s()
        await comes_true(lambda: len(rig.queue.calls) == 2)
        assert now_s() - started_s < 0.1
        await queued(rig, 2)
        assert rig.queue.ids == [first, second]

    on(story)


def test_immediate_jobs_of_one_group_are_all_published_and_do_not_share_a_group_in_the_queue() -> None:
    async def story(rig: SchedulerRig) -> None:
        ids = await rig.make_all([rig.new_job("g", mode=IMMEDIATE) for _ in range(50)])
        rig.start()
        await queued(rig, 50, POLL_S)
        assert {entry.group for entry in rig.queue.entries} == set(ids)

    on(story)


def test_jobs_of_a_group_are_published_by_sequence_and_then_by_age() -> None:
    async def story(rig: SchedulerRig) -> None:
        sequences = [99, 5, 99, 1, 5]
        ids = await rig.make_all([rig.new_job("g", sequence=sequence) for sequence in sequences])
        rig.start()
        await queued(rig, 5)
        assert rig.queue.ids == [ids[3], ids[1], ids[4], ids[0], ids[2]]

    on(story)


def test_no_group_is_the_group_default() -> None:
    async def story(rig: SchedulerRig) -> None:
        await rig.make(None)
        rig.start()
        await queued(rig, 1)
        assert rig.queue.entries[0].group == "DISPATCH_JOB:default"

    on(story)


def test_at_most_the_configured_number_of_groups_is_published_at_once() -> None:
    async def story(rig: SchedulerRig) -> None:
        settings = SchedulerSettings(batch_size=20, max_batch_size=20, max_concurrent_groups=3)
        await rig.make_all([rig.new_job(f"g{number}") for number in range(20)])
        under_way = 0
        most = 0
        publish = rig.queue.publish

        async def counted(publications):  # type: ignore[no-untyped-def]
            nonlocal under_way, most
            groups = len({publication.group for publication in publications})
            under_way += groups
            most = max(most, under_way)
            results = await publish(publications)
            under_way -= groups
            return results

        rig.queue.publish = counted  # type: ignore[method-assign]
        rig.start(settings=settings)
        await queued(rig, 20)
        assert most == 3

    on(story)


# Blocking


@pytest.mark.parametrize(("mode", "follows"), [(BLOCK, False), (NEXT, True), (IMMEDIATE, True)])
def test_an_error_blocks_only_the_block_on_error_jobs_behind_it(mode: DispatchMode, follows: bool) -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.start()
        failed = await rig.make("g")
        await has_status(rig, failed, QUEUED)
        await rig.fail(failed)
        follower = await rig.make("g", mode=mode)
        await asyncio.sleep(10 * POLL_S)
        assert (follower in rig.queue.ids) is follows

    on(story)


@pytest.mark.parametrize("resolve", ["retry", "ignore"])
def test_a_blocked_group_goes_on_at_once_when_its_error_is_resolved(resolve: str) -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.start()
        failed = await rig.make("g")
        await has_status(rig, failed, QUEUED)
        await rig.fail(failed)
        follower = await rig.make("g")
        await asyncio.sleep(100)
        assert follower not in rig.queue.ids
        started_s = now_s()
        await getattr(rig.jobs, resolve)([failed], rig.clock.now_ms())
        # A job that is tried again goes alone, and the others when it is delivered.
        await comes_true(lambda: len(rig.queue.ids) == 2, 60)
        assert now_s() - started_s < 0.1
        assert rig.queue.ids[1:] == [failed if resolve == "retry" else follower]
        if resolve == "retry":
            await has_status(rig, failed, QUEUED)
            await rig.deliver(failed)
            await comes_true(lambda: rig.queue.ids[1:] == [failed, follower], 60)

    on(story)


def test_a_thousand_blocked_groups_do_not_slow_a_healthy_one() -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.start()
        blocked = await rig.make_all([rig.new_job(f"b{number}") for number in range(1000)])
        await queued(rig, 1000)
        await has_status(rig, blocked[-1], QUEUED)
        await asyncio.sleep(1)
        for job_id in blocked:
            await rig.fail(job_id)
        await rig.make_all([rig.new_job(f"b{number}") for number in range(1000)])
        await asyncio.sleep(10)
        before = rig.database.calls
        started_s = now_s()
        healthy = await rig.make("healthy")
        await comes_true(lambda: healthy in rig.queue.ids, 60)
        assert now_s() - started_s < 0.1
        # Making the job, and one poll; not one question per blocked group.
        assert rig.database.calls - before <= 10
        assert len(rig.queue.ids) == 1001

    on(story)


# Errors


def test_dispatch_failure_keeps_the_job_and_its_followers_pending_and_others_go_on() -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.queue.refused_groups = {"DISPATCH_JOB:bad"}
        rig.queue.refusal = lambda: InvalidPublication("the queue does not carry this")
        bad = await rig.make_all([rig.new_job("bad") for _ in range(3)])
        good = await rig.make("good")
        scheduler = rig.start()
        await has_status(rig, good, QUEUED)
        later = await rig.make("bad")
        await asyncio.sleep(3 * POLL_S)
        assert {await rig.status(job_id) for job_id in (*bad, later)} == {PENDING}
        assert rig.queue.ids == [good]
        started_s = now_s()
        await rig.make("other")
        await queued(rig, 2)
        assert now_s() - started_s < 0.1
        rig.queue.refused_groups = set()
        await has_status(rig, later, QUEUED)
        assert rig.queue.ids[2:] == [*bad, later]
        assert scheduler.counts.publish_failures >= 3

    on(story)


def test_a_queue_that_is_down_gets_few_attempts_and_everything_when_it_is_back() -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.queue.is_down = True
        ids = await rig.make_all([rig.new_job(f"g{number}") for number in range(500)])
        scheduler = rig.start()
        await asyncio.sleep(120)
        # Each attempt is a small batch, and they come every few seconds.
        assert sum(len(call) for call in rig.queue.calls) < 120 / POLL_S * 2 * 20 + 500
        assert scheduler.counts.trouble is not None
        rig.queue.is_down = False
        started_s = now_s()
        await queued(rig, 500)
        assert now_s() - started_s < 3 * POLL_S
        assert sorted(rig.queue.ids) == sorted(ids)
        assert scheduler.counts.trouble is None

    on(story)


def test_queue_publisher_init_that_fails_is_a_warning_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.queue.cannot_open = 4
        scheduler = rig.start()
        job_id = await rig.make()
        await asyncio.sleep(0.1)
        assert scheduler.counts.trouble == "the queue cannot be opened: the broker does not answer"
        assert scheduler.counts.claimed == 0
        await has_status(rig, job_id, QUEUED)
        assert scheduler.counts.trouble is None

    on(story)
    warnings = [record for record in caplog.records if record.message == "the queue cannot be opened"]
    assert [record.levelno for record in warnings] == [logging.WARNING] * 4


def test_polling_exceptions_are_logged_and_do_not_stop_the_scheduler(caplog: pytest.LogCaptureFixture) -> None:
    async def story(rig: SchedulerRig) -> None:
        scheduler = rig.start()
        await asyncio.sleep(1)
        rig.database.is_down = True
        await asyncio.sleep(60)
        assert scheduler.counts.trouble == "jobs could not be claimed: the database is down"
        rig.database.is_down = False
        job_id = await rig.make()
        await has_status(rig, job_id, QUEUED)

    on(story)
    assert "a poll failed" in caplog.messages
    assert "the search for lost jobs failed" in caplog.messages


def test_a_dispatch_that_breaks_is_logged_and_its_group_is_published_again(caplog: pytest.LogCaptureFixture) -> None:
    async def story(rig: SchedulerRig) -> None:
        publish = rig.queue.publish
        rig.queue.publish = None  # type: ignore[assignment, method-assign]
        scheduler = rig.start()
        first, second = await rig.make_all([rig.new_job("g"), rig.new_job("g")])
        await asyncio.sleep(1)
        rig.queue.publish = publish  # type: ignore[method-assign]
        await has_status(rig, second, QUEUED)
        assert rig.queue.ids == [first, second]
        assert scheduler.counts.publish_failures == 2

    on(story)
    assert "jobs could not be published; they stay pending" in caplog.messages


def test_deduplication_is_a_success_and_the_job_becomes_queued() -> None:
    async def story(rig: SchedulerRig) -> None:
        job_id = await rig.make()
        (claimed,) = await claim(rig, "crashed")
        await publish_by_hand(rig, claimed)
        # It crashed before it could tell. Its claim ends, and the job comes to the queue once more.
        scheduler = rig.start()
        await has_status(rig, job_id, QUEUED)
        assert now_s() >= CLAIM_S - 1
        assert (rig.queue.ids, rig.queue.duplicates) == ([job_id], 1)
        assert scheduler.counts.publish_failures == 0

    on(story)


def test_a_database_that_fails_after_the_publication_leads_to_one_entry_in_the_queue() -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.queue.latency_s = 1.0
        rig.start()
        job_id = await rig.make()
        await queued(rig, 1)
        rig.database.is_down = True
        await asyncio.sleep(5)
        rig.database.is_down = False
        assert await rig.status(job_id) is PENDING
        await has_status(rig, job_id, QUEUED)
        assert (rig.queue.ids, rig.queue.duplicates) == ([job_id], 1)

    on(story)


# Recovery


def test_a_queued_job_whose_pointer_is_gone_is_published_again_after_fifteen_minutes() -> None:
    async def story(rig: SchedulerRig) -> None:
        scheduler = rig.start()
        job_id = await rig.make()
        await has_status(rig, job_id, QUEUED)
        rig.queue.lose_all()
        await asyncio.sleep(14 * 60)
        assert len(rig.queue.entries) == 1
        await queued(rig, 2, 3 * 60)
        assert [entry.dedup_id for entry in rig.queue.entries] == [f"{job_id}:0", f"{job_id}:1"]
        assert scheduler.counts.recovered == 1

    on(story)


def test_a_job_whose_pointer_may_be_in_the_queue_is_not_published_again_however_old_it_is() -> None:
    async def story(rig: SchedulerRig) -> None:
        scheduler = rig.start()
        await rig.make_all([rig.new_job(f"g{number}") for number in range(30)])
        await queued(rig, 30)
        await asyncio.sleep(4 * 3600)
        assert (len(rig.queue.entries), scheduler.counts.recovered) == (30, 0)

        # A queue that does not answer is no evidence.
        rig.queue.is_down = True
        rig.queue.lose_all()
        await asyncio.sleep(3600)
        assert scheduler.counts.recovered == 0
        rig.queue.is_down = False
        await queued(rig, 60, 120)

    on(story)


def test_a_lost_job_is_found_among_old_ones_that_still_wait() -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.start()
        lost = await rig.make()
        await has_status(rig, lost, QUEUED)
        await asyncio.sleep(10 * 60)
        await rig.make_all([rig.new_job(f"g{number}") for number in range(200)])
        await queued(rig, 201)
        rig.queue.gone.add(0)
        await asyncio.sleep(3600)
        assert [entry.dedup_id for entry in rig.queue.entries[201:]] == [f"{lost}:1"]

    on(story)


def test_a_job_whose_token_has_expired_is_published_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    lifetime_s = 3600
    # Fifteen days are thousands of polls.
    monkeypatch.setattr(recovery, "TOKEN_LIFETIME_S", lifetime_s)

    async def story(rig: SchedulerRig) -> None:
        rig.start()
        job_id = await rig.make()
        await has_status(rig, job_id, QUEUED)
        await asyncio.sleep(lifetime_s - 60)
        assert len(rig.queue.entries) == 1
        await queued(rig, 2, 180)

    on(story)


def test_stale_recovery_asks_by_lease_so_a_job_that_is_known_to_be_on_its_way_is_left_alone() -> None:
    async def story(rig: SchedulerRig) -> None:
        scheduler = rig.start()
        job_id = await rig.make()
        await has_status(rig, job_id, QUEUED)
        await asyncio.sleep(14 * 60)
        rig.queue.lose_all()
        await rig.jobs.extend_leases([job_id], rig.clock.now_ms() + 900_000)
        await asyncio.sleep(10 * 60)
        assert (len(rig.queue.entries), scheduler.counts.recovered) == (1, 0)

    on(story)


def test_a_stale_poll_takes_no_more_than_its_number() -> None:
    async def story(rig: SchedulerRig) -> None:
        settings = SchedulerSettings(stale_after_s=100, stale_batch_size=7)
        await rig.make_all([rig.new_job(f"g{number}") for number in range(20)])
        scheduler = rig.start(settings=settings)
        await queued(rig, 20)
        rig.queue.lose_all()
        await asyncio.sleep(130)
        assert scheduler.counts.recovered == 7
        await asyncio.sleep(60)
        assert scheduler.counts.recovered == 14

    on(story)


def test_the_search_for_lost_jobs_goes_through_the_pools_a_few_at_a_time() -> None:
    async def story(rig: SchedulerRig) -> None:
        settings = SchedulerSettings(stale_after_s=100, stale_batch_size=1)
        ids = await rig.make_all([rig.new_job(f"g{number}", pool=f"pool-{number}") for number in range(3)])
        scheduler = rig.start(settings=settings)
        await queued(rig, 3)
        rig.queue.lose_all()
        await asyncio.sleep(130 + 2 * settings.stale_poll_s)
        assert rig.queue.ids[3:] == ids
        assert scheduler.counts.errors == 0

    on(story)


def test_a_job_that_keeps_coming_back_is_published_ever_more_rarely_and_delays_nobody() -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.start()
        lost, _ = await rig.make_all([rig.new_job("g"), rig.new_job("g")])
        await queued(rig, 2)
        # The pointer of the first is lost; the second reaches its delivery before it, again and again.
        seen, end_s = 1, now_s() + 60
        while now_s() < end_s:
            for entry in rig.queue.entries[seen:]:
                seen += 1
                await rig.begin(entry.pointer.id)
            await asyncio.sleep(0.01)
        assert lost not in rig.queue.ids[2:]
        assert 5 < len(rig.queue.entries) < 40
        started_s = now_s()
        healthy = await rig.make("healthy")
        await comes_true(lambda: healthy in rig.queue.ids, 60)
        assert now_s() - started_s < 0.1

    on(story)


# Stopping


def test_a_graceful_stop_lets_publications_end_and_gives_the_rest_back_at_once() -> None:
    async def story(rig: SchedulerRig) -> None:
        rig.queue.latency_s = 0.5
        settings = SchedulerSettings(max_batch_size=20, max_concurrent_groups=1)
        ids = await rig.make_all([rig.new_job(f"g{number}") for number in range(5)])
        rig.start(settings=settings)
        await comes_true(lambda: len(rig.queue.calls) == 2)
        await rig.stop()
        assert rig.queue.closed
        assert [await rig.status(job_id) for job_id in ids] == [QUEUED, QUEUED, PENDING, PENDING, PENDING]
        assert [job.id for job in await claim(rig, "next")] == ids[2:]

    on(story)


def test_a_final_job_is_never_published() -> None:
    async def story(rig: SchedulerRig) -> None:
        cancelled = await rig.make("a")
        expired = await rig.make("b", expires_at_ms=rig.clock.now_ms() + 10)
        await rig.jobs.cancel([cancelled], rig.clock.now_ms())
        await asyncio.sleep(1)
        rig.start()
        done = await rig.make("c")
        await has_status(rig, done, QUEUED)
        begun = await rig.begin(done)
        assert begun.job is not None
        await rig.finish(begun.job, Done(JobStatus.COMPLETED))
        await asyncio.sleep(3600)
        assert rig.queue.ids == [done]
        assert await rig.status(expired) is JobStatus.EXPIRED

    on(story)


async def claim(rig: SchedulerRig, owner: str) -> list[ClaimedJob]:
    """The jobs of all lanes that may be claimed now."""
    claims = LaneClaims(rig.jobs.lanes, LaneOwner(owner), SchedulerSettings(), rig.clock)
    runs = await claims.take(await rig.jobs.lanes.read(rig.clock.now_ms(), 10, unlimited()))
    return [job for run in runs for job in run.jobs]


async def publish_by_hand(rig: SchedulerRig, job: ClaimedJob) -> None:
    """What a scheduler does, by someone who forgets it then."""
    publication = Pointers(ENDPOINT, PlainTokens()).publication(job, rig.clock.now_ms())
    assert await rig.queue.publish([publication]) == [None]
