"""The small parts of the scheduler, each by itself."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from penstock.cluster.errors import InvalidStandby
from penstock.cluster.leadership import lease_for
from penstock.cluster.standby import Alone
from penstock.domain.errors import InvalidArgument
from penstock.domain.job import ClaimedJob
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL, JobStatus
from penstock.domain.order import LaneKey, return_pause_s
from penstock.domain.pace.credit import AwakeStream, CreditBook, CreditLimits
from penstock.domain.pointer import DispatchMode
from penstock.domain.retry import Backoff
from penstock.events.dispatch.health import SchedulerHealth, SchedulerHealthStatus, assess
from penstock.events.dispatch.lane_claims import LaneClaims
from penstock.events.dispatch.lane_publisher import LanePublisher
from penstock.events.dispatch.pending_job_poller import ClaimPace
from penstock.events.dispatch.pointers import Pointers, queue_of
from penstock.events.dispatch.server import BlockOnErrorChecker, SchedulerRole
from penstock.events.dispatch.settings import Counts, SchedulerSettings
from penstock.events.errors import DatabaseFailed
from penstock.events.store.database import LaneContent, LaneJob
from penstock.events.store.repository.lane_runs import LaneRow, LaneRun, run_of
from penstock.events.store.repository.lanes import LaneOwner
from penstock.queues.port import Publication
from penstock.router.leadership import RouterLeadership as RouterLeadership
from penstock.testing.clock import VirtualClock
from penstock.testing.virtual_loop import LoopClock, run_virtual
from tests.rigs.jobs import any_awake, unlimited
from tests.rigs.scheduler import BLOCK, IMMEDIATE, NEXT, PlainTokens, SchedulerRig, comes_true

FOR_EVER_S = 1e9


def job(job_id: str, group: str = "g", mode: DispatchMode = BLOCK, publish_round: int = 0) -> ClaimedJob:
    return ClaimedJob(job_id, group, mode, "DISPATCH-POOL", publish_round, 0)


def test_a_pointer_has_every_field_of_the_format_so_that_other_routers_can_read_it() -> None:
    pointers = Pointers("http://localhost:8080/api/dispatch/process", PlainTokens(), "SLOW")
    publication = pointers.publication(job("01K97F", "orders:customer-12345"), 7)
    assert json.loads(publication.body) == {
        "id": "01K97F",
        "poolCode": "SLOW",
        "authToken": "01K97F@7",
        "mediationType": "HTTP",
        "mediationTarget": "http://localhost:8080/api/dispatch/process",
        "messageGroupId": "orders:customer-12345",
        "highPriority": False,
        "dispatchMode": "BLOCK_ON_ERROR",
    }
    assert (publication.group, publication.dedup_id) == ("orders:customer-12345", "01K97F:0")
    urgent = msgspec.structs.replace(job("01K97F", "orders:customer-12345"), high_priority=True)
    assert json.loads(pointers.publication(urgent, 7).body)["highPriority"] is True


def test_the_pace_grows_while_claims_are_full_and_falls_when_they_are_not() -> None:
    pace = ClaimPace(batch=20, most=2000, groups=10)
    seen = []
    for count in (20, 80, 320, 1280, 2000, 30, 5, 0, 0):
        pace.claimed(count)
        seen.append((pace.batch, pace.groups))
    assert seen == [
        (80, 40),
        (320, 160),
        (1280, 640),
        (2000, 1000),
        (2000, 1000),
        (500, 250),
        (125, 62),
        (31, 15),
        (20, 10),
    ]


def test_a_pace_with_no_room_to_grow_keeps_to_its_numbers() -> None:
    pace = ClaimPace(batch=20, most=20, groups=10)
    pace.claimed(20)
    assert (pace.batch, pace.groups) == (20, 10)


def test_a_backoff_doubles_up_to_its_limit_and_ends_with_a_success() -> None:
    backoff = Backoff(0.5, 3.0)
    delays = []
    for _ in range(5):
        backoff.failed()
        delays.append(backoff.delay_s)
    backoff.succeeded()
    assert delays == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.delay_s == 0


def test_a_job_that_came_back_waits_longer_each_time() -> None:
    assert [return_pause_s(publish_round) for publish_round in (0, 2, 3, 4, 8, 9, 1000)] == [
        0,
        0,
        0.1,
        0.2,
        3.2,
        5.0,
        5.0,
    ]


def lane_job(number: int, publish_round: int, deliveries: int = 0, updated_at_ms: int = 0) -> LaneJob:
    """A job of a lane that came back from the queue in each round without a delivery."""
    return LaneJob(str(number), BLOCK, number, 0, 0, "P", publish_round, deliveries, updated_at_ms)


def run(
    jobs: list[LaneJob], now_ms: int, *, ordered: bool = True, sent: Sequence[str] = (), pool: str = "P"
) -> LaneRun:
    """What a lane with these jobs gives, of which some others are on their way."""
    row = LaneRow(LaneKey("g", ordered), 7, False, pool, AwakeStream(pool, ""))
    return run_of(row, LaneContent(None, jobs, sent), 100, 10, now_ms)


def test_a_lane_gives_the_jobs_before_one_that_rests_and_rests_with_its_first() -> None:
    jobs = [lane_job(1, 0), lane_job(2, 3), lane_job(3, 0)]

    going = run(jobs, 99)
    resting = run(jobs[1:], 99)
    rested = run(jobs[1:], 100)

    assert ([job.id for job in going.jobs], going.rests_until_ms) == (["1"], 0)
    assert ([job.id for job in resting.jobs], resting.rests_until_ms) == (["2", "3"], 100)
    assert ([job.id for job in rested.jobs], rested.rests_until_ms) == (["2", "3"], 0)


def test_a_retry_has_its_own_delay_and_an_immediate_job_never_rests() -> None:
    assert run([lane_job(1, 9, deliveries=9)], 0).rests_until_ms == 0
    assert run([lane_job(1, 9)], 0, ordered=False).rests_until_ms == 0


def test_a_lane_with_enough_on_its_way_waits_for_one_of_them() -> None:
    jobs = [lane_job(number, 0) for number in range(1, 21)]
    sent = [f"s{number}" for number in range(10)]

    first = run(jobs, 0)
    full = run(jobs, 0, sent=sent)
    half_full = run(jobs, 0, sent=sent[:5])

    assert ([job.id for job in first.jobs], first.waits_for) == ([str(number) for number in range(1, 11)], "6")
    assert (full.jobs, full.waits_for) == ([], "s5")
    assert (len(half_full.jobs), half_full.waits_for) == (5, "1")


def test_a_job_that_is_tried_again_goes_alone() -> None:
    again = run([lane_job(1, 1, deliveries=1), lane_job(2, 0)], 0)

    assert ([job.id for job in again.jobs], again.waits_for) == (["1"], "1")


def test_a_lane_moves_to_another_pool_when_none_of_its_jobs_is_on_its_way_in_the_old_one() -> None:
    jobs = [lane_job(1, 0)]

    assert run(jobs, 0, pool="old", sent=["s"]).waits_for == "s"
    assert run(jobs, 0, pool="old").moves_to == "P"
    assert not run(jobs, 0, pool="old").jobs


class RecordingQueue:
    """Takes its time for each call, and remembers it."""

    def __init__(self) -> None:
        self.waves: list[list[str | None]] = []

    async def opened(self) -> "RecordingQueue":
        return self

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def settled_before_ms(self, pool: str | None = None) -> int:
        raise NotImplementedError

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        self.waves.append([publication.dedup_id for publication in publications])
        await asyncio.sleep(1)
        return [None] * len(publications)


class Lanes:
    """A publisher of lanes on virtual time, over real tables, and the queue it publishes to."""

    def __init__(self, clock: LoopClock, most_lanes: int) -> None:
        self.rig = SchedulerRig(clock)
        self.counts = Counts()
        self.queue = RecordingQueue()
        self.claims = LaneClaims(self.rig.jobs.lanes, LaneOwner("me"), SchedulerSettings(), clock)
        self.publisher = LanePublisher(
            self.claims,
            self.queue,
            Pointers("http://endpoint", PlainTokens()),
            Backoff(1, 1),
            self.counts,
            clock,
            most_lanes=lambda: most_lanes,
            may_publish=lambda: True,
            seconds=asyncio.get_running_loop().time,
        )

    async def take(self, good_for_s: float = FOR_EVER_S, credit: CreditBook | None = None) -> int:
        """Take all lanes whose turn it is."""
        runs = await self.rig.jobs.lanes.read(self.rig.clock.now_ms(), 100, credit or unlimited())
        return await self.publisher.take(runs, asyncio.get_running_loop().time() + good_for_s)

    async def make(self, *groups: str, **fields: Any) -> list[str]:
        """Jobs of these groups; what the queue will know them by."""
        ids = await self.rig.make_all([self.rig.new_job(group, **fields) for group in groups])
        return [f"{job_id}:0" for job_id in ids]

    @property
    def held(self) -> tuple[int, int]:
        return self.publisher.lanes_held, self.publisher.jobs_held


def on_lanes(most_lanes: int, story: Callable[[Lanes], Awaitable[None]]) -> None:
    """Run a story on virtual time."""

    async def main(clock: LoopClock) -> None:
        lanes = Lanes(clock, most_lanes)
        try:
            await story(lanes)
        finally:
            await lanes.rig.close()

    run_virtual(main)


def test_lanes_are_published_in_turn_a_few_at_once_each_in_order() -> None:
    async def story(lanes: Lanes) -> None:
        a1, b1, c1, a2 = await lanes.make("a", "b", "c", "a")
        assert await lanes.take() == 4
        assert lanes.held == (3, 4)
        await lanes.publisher.has_room(1)
        assert lanes.queue.waves == [[a1, a2, b1], [c1]]
        assert lanes.held == (0, 0)

    on_lanes(2, story)


def test_a_lane_that_is_being_published_from_gives_nothing_more_until_then() -> None:
    async def story(lanes: Lanes) -> None:
        (a1,) = await lanes.make("a")
        await lanes.take()
        (a2,) = await lanes.make("a")
        assert await lanes.take() == 0
        await lanes.publisher.has_room(1)
        await lanes.take()
        await lanes.publisher.has_room(1)
        assert lanes.queue.waves == [[a1], [a2]]

    on_lanes(9, story)


def test_a_lane_that_another_scheduler_claimed_meanwhile_is_left_to_it() -> None:
    async def story(lanes: Lanes) -> None:
        await lanes.make("a")
        table = lanes.rig.jobs.lanes
        runs = await table.read(lanes.rig.clock.now_ms(), 100, unlimited())
        other = LaneClaims(table, LaneOwner("other"), SchedulerSettings(), lanes.rig.clock)
        assert await other.take(runs) == runs
        assert await lanes.claims.take(runs) == []

    on_lanes(9, story)


def test_a_mark_that_failed_is_made_once_more_and_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    marks: list[object] = []

    async def story(lanes: Lanes) -> None:
        table = lanes.rig.jobs.lanes
        mark_published = table.mark_published

        async def mark(jobs: Sequence[ClaimedJob], *rest: Any) -> None:
            marks.append(jobs)
            if len(marks) == 1:
                raise DatabaseFailed("refused by the test")
            await mark_published(jobs, *rest)

        monkeypatch.setattr(table, "mark_published", mark)
        await lanes.make("a")
        (run,) = await lanes.claims.take(await table.read(lanes.rig.clock.now_ms(), 100, unlimited()))
        with pytest.raises(DatabaseFailed):
            await lanes.claims.published(run.jobs, [run.lane])
        await lanes.claims.settle()
        await lanes.claims.settle()
        assert marks == [run.jobs, run.jobs]
        assert await lanes.rig.status(run.jobs[0].id) is JobStatus.QUEUED

    on_lanes(9, story)


def test_jobs_that_are_being_published_have_used_their_credit() -> None:
    async def story(lanes: Lanes) -> None:
        credit = CreditBook(fixed=CreditLimits(concurrency=1, shared=True), in_hand=lanes.counts.in_hand)
        await lanes.make(*(f"group-{number}" for number in range(60)))
        assert await lanes.take(credit=credit) == 25
        # Nothing of it is marked as published yet.
        await asyncio.sleep(0.5)
        assert (await lanes.take(credit=credit), lanes.held) == (0, (25, 25))
        await lanes.publisher.has_room(1)
        assert (await lanes.take(credit=credit), sum(map(len, lanes.queue.waves))) == (0, 25)
        assert not lanes.counts.in_hand

    on_lanes(99, story)


def test_lanes_whose_claim_is_nearly_over_are_not_published_from() -> None:
    async def story(lanes: Lanes) -> None:
        a1, _ = await lanes.make("a", "b")
        await lanes.take(good_for_s=0.5)
        (c1,) = await lanes.make("c")
        await lanes.take()
        await lanes.publisher.has_room(1)
        assert lanes.queue.waves == [[a1], [c1]]
        assert lanes.held == (0, 0)

    on_lanes(1, story)


def test_a_lane_whose_claim_ended_while_it_is_being_published_from_is_not_published_twice() -> None:
    async def story(lanes: Lanes) -> None:
        (a1,) = await lanes.make("a")
        await lanes.take()
        later_ms = lanes.rig.clock.now_ms() + 31_000
        await lanes.rig.jobs.do_chores(later_ms)
        assert await lanes.take() == 0
        await lanes.publisher.has_room(1)
        assert lanes.queue.waves == [[a1]]
        assert not await any_awake(lanes.rig.jobs.lanes)

    on_lanes(9, story)


def test_a_wave_that_breaks_frees_its_place_and_its_lanes_come_again(caplog: pytest.LogCaptureFixture) -> None:
    async def story(lanes: Lanes) -> None:
        mark, lanes.publisher._mark = lanes.publisher._mark, None  # type: ignore[method-assign, assignment]
        (a1,) = await lanes.make("a")
        await lanes.take()
        await lanes.publisher.has_room(1)
        lanes.publisher._mark = mark  # type: ignore[method-assign]
        await asyncio.sleep(31)
        await lanes.rig.jobs.do_chores(lanes.rig.clock.now_ms())
        await lanes.take()
        await lanes.publisher.has_room(1)
        assert lanes.queue.waves == [[a1], [a1]]

    on_lanes(1, story)
    assert "a wave failed unexpectedly" in caplog.messages


def test_ordered_and_immediate_jobs_of_a_group_do_not_wait_for_each_other() -> None:
    async def story(lanes: Lanes) -> None:
        (ordered,) = await lanes.make("g")
        await lanes.take()
        (loose,) = await lanes.make("g", mode=IMMEDIATE)
        await lanes.take()
        await asyncio.sleep(0)
        assert lanes.queue.waves == [[ordered], [loose]]

    on_lanes(9, story)


def test_what_is_not_in_flight_at_the_end_is_given_back() -> None:
    async def story(lanes: Lanes) -> None:
        a1, b1, c1 = await lanes.make("a", "b", "c")
        await lanes.take()
        await asyncio.sleep(0.5)
        await lanes.publisher.finish(10)
        assert (lanes.queue.waves, lanes.held) == ([[a1]], (0, 0))
        await lanes.take()
        await lanes.publisher.has_room(1)
        assert lanes.queue.waves[1:] == [[b1], [c1]]

    on_lanes(1, story)


def test_a_lane_that_failed_rests_though_the_others_are_given_back() -> None:
    async def story(lanes: Lanes) -> None:
        await lanes.make("a", "b")
        runs = await lanes.rig.jobs.lanes.read(lanes.rig.clock.now_ms(), 100, unlimited())
        failed, other = await lanes.claims.take(runs)
        await lanes.claims.failed([failed.lane])
        await lanes.claims.settle()

        async def free_lanes() -> list[LaneKey]:
            await lanes.rig.jobs.do_chores(lanes.rig.clock.now_ms())
            return [run.lane for run in await lanes.rig.jobs.lanes.read(lanes.rig.clock.now_ms(), 100, unlimited())]

        assert await free_lanes() == [other.lane]
        await asyncio.sleep(SchedulerSettings().poll_interval_s)
        assert set(await free_lanes()) == {failed.lane, other.lane}

    on_lanes(9, story)


def test_a_lane_that_was_released_is_not_released_again_at_the_end() -> None:
    async def story(lanes: Lanes) -> None:
        await lanes.make("a")
        runs = await lanes.rig.jobs.lanes.read(lanes.rig.clock.now_ms(), 100, unlimited())
        (run,) = await lanes.claims.take(runs)
        await lanes.claims.published(run.jobs, [run.lane])
        calls = lanes.rig.database.calls
        await lanes.claims.settle()
        assert lanes.rig.database.calls == calls

    on_lanes(9, story)


@pytest.mark.parametrize(
    ("pool", "queue"),
    [
        ("billing", "billing"),
        (DEFAULT_DISPATCH_POOL, None),
        ("", None),
        (" ", None),
        ("line\nbreak", None),
        ("x" * 257, None),
    ],
)
def test_a_pool_has_a_queue_of_its_own_if_routers_accept_its_code(pool: str, queue: str | None) -> None:
    assert queue_of(pool) == queue


class Led:
    """A scheduler that leads, or one that stands by; both were given a token once."""

    token: int | None = 7

    def __init__(self, *, leads: bool) -> None:
        self._leads = leads

    def is_primary(self) -> bool:
        return self._leads

    async def becomes(self, primary: bool) -> None:
        await asyncio.Event().wait()

    def stand_down(self) -> None:
        raise AssertionError("no one else leads")


@pytest.mark.parametrize(
    ("leads", "trouble", "expected"),
    [
        (True, None, SchedulerHealth(SchedulerHealthStatus.HEALTHY, True, 7, None, 0, 0.0)),
        (True, "no answer", SchedulerHealth(SchedulerHealthStatus.DEGRADED, True, 7, "no answer", 0, 0.0)),
        (False, "no answer", SchedulerHealth(SchedulerHealthStatus.STANDING_BY, False, None, None, 0, 0.0)),
    ],
)
def test_the_health_of_a_scheduler(leads: bool, trouble: str | None, expected: SchedulerHealth) -> None:
    async def main(clock: LoopClock) -> SchedulerHealth:
        rig = SchedulerRig(clock)
        leadership = Led(leads=leads)
        scheduler = rig.scheduler(leadership)
        scheduler.counts.trouble = trouble
        try:
            return assess(scheduler, leadership)
        finally:
            await rig.close()

    assert run_virtual(main) == expected


@pytest.mark.parametrize("standby", ["", "on", "postgresql://db", "memcached://cache"])
async def test_a_standby_of_no_known_kind_is_refused(standby: str) -> None:
    rig = SchedulerRig(VirtualClock())
    try:
        with pytest.raises(InvalidStandby, match="off, sql or redis"):
            async with lease_for(standby, rig.jobs, rig.clock, "scheduler", "node"):
                pass
    finally:
        await rig.close()


def test_a_lease_that_is_renewed_less_than_twice_in_its_time_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="twice"):
        SchedulerRole(scheduler=SchedulerSettings(), lease_ttl_s=10, lease_renew_s=6)
    assert SchedulerRole(scheduler=SchedulerSettings(), lease_ttl_s=10, lease_renew_s=5).lease_renew_s == 5


def test_the_checker_names_the_errors_that_block_a_group() -> None:
    async def main(clock: LoopClock) -> None:
        rig = SchedulerRig(clock)
        checker = BlockOnErrorChecker(rig.jobs)
        rig.start()
        ids = await rig.make_all([rig.new_job("g", mode=NEXT), rig.new_job("g"), rig.new_job("other")])
        await comes_true(lambda: len(rig.queue.entries) == 3)
        await asyncio.sleep(1)
        assert await checker.errors_of("DISPATCH_JOB:g") == []
        # Those behind a failed job of another mode go on.
        await rig.fail(ids[0])
        assert await checker.errors_of("DISPATCH_JOB:g") == []
        await rig.jobs.ignore([ids[0]], clock.now_ms())
        await rig.fail(ids[1])
        assert await checker.errors_of("DISPATCH_JOB:g") == [ids[1]]
        assert await checker.errors_of("DISPATCH_JOB:other") == []
        await rig.close()

    run_virtual(main)


def test_a_scheduler_alone_always_leads_as_the_router_understands_it() -> None:
    async def main(clock: LoopClock) -> None:
        alone: RouterLeadership = Alone()
        assert alone.is_primary()
        await alone.becomes(True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await alone.becomes(False)

    run_virtual(main)
