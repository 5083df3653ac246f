"""Lanes claimed as a whole, on both databases: who has them, for how long, and what becomes of their jobs."""

from collections.abc import AsyncIterator, Sequence

import pytest

from penstock.cluster.errors import StaleLeader
from penstock.domain.job import ClaimedJob
from penstock.domain.job_state import JobStatus
from penstock.domain.order import LaneKey
from penstock.domain.pace.credit import AwakeStream
from penstock.domain.pointer import DispatchMode
from penstock.events.store.database import Row
from penstock.events.store.repository.deliveries import Beginning
from penstock.events.store.repository.lanes import AwakeRange, LaneOwner, Lanes
from penstock.events.store.repository.leader import SCHEDULER
from tests.rigs.job_database import Connect
from tests.rigs.jobs import BLOCK, IMMEDIATE, LEASE_S, NEXT, QUEUE_LEASE_S, JobRig, any_awake, unlimited

G = LaneKey("DISPATCH_JOB:g", True)
H = LaneKey("DISPATCH_JOB:h", True)
LOOSE = LaneKey("DISPATCH_JOB:g", False)
MINE, OTHERS = LaneOwner("query/1"), LaneOwner("query/2")
NONE_AWAKE = AwakeRange(None, 0, 0, 0, 0)
PENDING, QUEUED = JobStatus.PENDING, JobStatus.QUEUED


class LaneRig(JobRig):
    """A rig whose steps are those of a task."""

    @property
    def lanes(self) -> Lanes:
        return self.repository.lanes

    async def turns(self) -> dict[LaneKey, int]:
        """The lanes that may be claimed, each with its turn, in turn."""
        rows = await self._rows("SELECT group_key, ordered, turn FROM lanes WHERE awake ORDER BY turn", {})
        return {LaneKey(key, bool(ordered)): turn for key, ordered, turn in rows}

    async def awake(self, owner: str = "") -> AwakeRange:
        ranges = await self.lanes.awake_ranges(owner, self.now_ms, 1000, unlimited())
        return ranges[0] if ranges else NONE_AWAKE

    async def take(self, *lanes: LaneKey, owner: LaneOwner = MINE) -> list[LaneKey]:
        """Claim lanes as they stand now."""
        wanted = {lane: await self.turn_of(lane) for lane in lanes}
        return sorted(await self.lanes.claim(wanted, owner, self.now_ms, LEASE_S * 1000))

    async def turn_of(self, lane: LaneKey) -> int:
        ((turn,),) = await self._select("SELECT turn FROM lanes WHERE group_key = :key AND ordered = :ordered", lane)
        return int(turn)

    async def state_of(self, lane: LaneKey) -> tuple[bool, int] | None:
        rows = await self._select(
            "SELECT awake, in_flight FROM lanes WHERE group_key = :key AND ordered = :ordered", lane
        )
        return (bool(rows[0][0]), int(rows[0][1])) if rows else None

    async def published(self, *job_ids: str, done: Sequence[LaneKey] = (G,), owner: LaneOwner = MINE) -> None:
        jobs = [await self.claimed(job_id) for job_id in job_ids]
        await self.mark(jobs, done, owner)

    async def mark(self, jobs: Sequence[ClaimedJob], done: Sequence[LaneKey] = (G,), owner: LaneOwner = MINE) -> None:
        await self.lanes.mark_published(
            jobs, dict.fromkeys(done), owner, self.now_ms, self.now_ms + QUEUE_LEASE_S * 1000
        )

    async def claimed(self, job_id: str) -> ClaimedJob:
        """A job as a task read it."""
        job = await self.repository.get_job(job_id)
        return ClaimedJob(job.id, job.group_key, job.mode, job.pool, job.publish_round, job.due_at_ms)

    async def chores(self) -> None:
        await self.repository.do_chores(self.now_ms)

    async def _select(self, text: str, lane: LaneKey) -> list[Row]:
        return await self._rows(text, {"key": lane.group_key, "ordered": lane.ordered})

    async def _rows(self, text: str, values: dict[str, object]) -> list[Row]:
        return await self.repository._database.read(lambda tx: tx.select(text, values))


@pytest.fixture
async def rig(connect: Connect) -> AsyncIterator[LaneRig]:
    rig = LaneRig(connect())
    await rig.repository.open(rig.now_ms)
    yield rig
    await rig.repository.close()


async def test_a_claimed_lane_is_nobody_elses_and_its_jobs_stay_pending(rig: LaneRig) -> None:
    job = await rig.make("g")
    assert await rig.take(G) == [G]
    assert await rig.take(G, owner=OTHERS) == []
    assert await rig.status(job) is PENDING
    assert not await any_awake(rig.lanes)
    # Neither does the inline scheduler get at it, nor does a new job wake it.
    await rig.make("g")
    assert await rig.claim() == []
    assert not await any_awake(rig.lanes)


async def test_the_same_owner_takes_its_lanes_again(rig: LaneRig) -> None:
    await rig.make("g")
    turn = await rig.turn_of(G)
    assert await rig.take(G) == [G]
    assert await rig.awake(MINE.name) == AwakeRange(None, turn, turn, 1, 1000)
    assert (await rig.awake(OTHERS.name)).lanes == 0
    assert await rig.take(G) == [G]


async def test_a_lane_that_was_served_since_it_was_read_is_not_taken(rig: LaneRig) -> None:
    first, _ = await rig.make("g"), await rig.make("g")
    read = {G: await rig.turn_of(G)}
    await rig.take(G)
    await rig.published(first)
    assert await rig.lanes.claim(read, MINE, rig.now_ms, LEASE_S * 1000) == []
    assert await rig.take(G) == [G]


async def test_published_jobs_are_queued_and_an_empty_lane_is_gone(rig: LaneRig) -> None:
    jobs = [await rig.make("g") for _ in range(3)]
    await rig.take(G)
    await rig.published(*jobs)
    assert [await rig.status(job) for job in jobs] == [QUEUED] * 3
    assert await rig.state_of(G) is None


async def test_a_lane_that_has_more_goes_to_the_end_of_the_line(rig: LaneRig) -> None:
    first, _ = await rig.make("g"), await rig.make("g")
    await rig.make("h")
    await rig.take(G)
    await rig.published(first)
    assert list(await rig.turns()) == [H, G]


async def test_a_job_that_came_back_meanwhile_is_not_marked_for_its_old_round(rig: LaneRig) -> None:
    job = await rig.make("g")
    before = await rig.claimed(job)
    await rig.take(G)
    await rig.mark([before])
    # It comes to its delivery while its subscription pauses, say: back to PENDING, in its next round.
    await rig.make("g", sequence=1)
    assert (await rig.begin(job)).what is Beginning.HELD_BACK
    await rig.mark([before])
    assert await rig.status(job) is PENDING


async def test_a_job_that_reaches_its_delivery_before_it_is_marked_is_delivered(rig: LaneRig) -> None:
    job = await rig.make("g")
    await rig.take(G)
    await rig.deliver(job)
    await rig.published(job)
    assert await rig.status(job) is JobStatus.COMPLETED
    assert await rig.state_of(G) is None


async def test_a_claim_that_is_over_lapses_and_the_lane_is_awake_again(rig: LaneRig) -> None:
    await rig.make("g")
    await rig.take(G)
    assert await rig.repository.next_due_ms() == rig.now_ms + LEASE_S * 1000
    await rig.chores()
    assert not await any_awake(rig.lanes)
    rig.clock.advance(LEASE_S)
    await rig.chores()
    await rig.called()
    assert await rig.take(G, owner=OTHERS) == [G]
    assert await rig.claim_ids() == []


async def test_the_inline_scheduler_goes_on_with_lanes_that_a_dead_task_had_claimed(rig: LaneRig) -> None:
    jobs = [await rig.make("g") for _ in range(2)]
    await rig.take(G)
    rig.clock.advance(LEASE_S)
    assert await rig.claim_ids() == jobs


async def test_lanes_of_the_inline_scheduler_are_not_taken_while_it_publishes(rig: LaneRig) -> None:
    await rig.make("g")
    await rig.claim()
    assert await rig.take(G) == []


async def test_a_late_owner_changes_nothing_of_the_next_ones_claim(rig: LaneRig) -> None:
    jobs = [await rig.make("g") for _ in range(2)]
    await rig.take(G)
    rig.clock.advance(LEASE_S)
    await rig.chores()
    await rig.take(G, owner=OTHERS)
    await rig.published(jobs[0])
    # What it published is in the queue all the same; the lane is the other's.
    assert await rig.status(jobs[0]) is QUEUED
    assert await rig.state_of(G) == (False, 1)
    await rig.lanes.hold([(G, rig.now_ms)], MINE)
    await rig.chores()
    assert await rig.state_of(G) == (False, 1)


async def test_a_held_lane_rests_until_its_time(rig: LaneRig) -> None:
    await rig.make("g")
    await rig.take(G)
    await rig.lanes.hold([(G, rig.now_ms + 5_000)], MINE)
    rig.clock.advance(4.9)
    await rig.chores()
    assert not await any_awake(rig.lanes)
    rig.clock.advance(0.1)
    await rig.chores()
    assert await any_awake(rig.lanes)


async def test_ordered_and_immediate_jobs_of_a_group_are_two_lanes(rig: LaneRig) -> None:
    await rig.make("g")
    loose = await rig.make("g", mode=IMMEDIATE)
    assert await rig.take(G) == [G]
    assert await rig.take(LOOSE, owner=OTHERS) == [LOOSE]
    await rig.published(loose, done=[LOOSE], owner=OTHERS)
    assert (await rig.state_of(LOOSE), await rig.state_of(G)) == (None, (False, 1))


@pytest.mark.parametrize("mode", [BLOCK, NEXT])
async def test_a_lane_with_nothing_to_give_sleeps_until_it_has(rig: LaneRig, mode: DispatchMode) -> None:
    failed = await rig.make("g")
    await rig.queue_all()
    await rig.fail(failed)
    await rig.make("g", mode=mode)
    await rig.lanes.let_sleep([G], MINE, rig.now_ms)
    assert await any_awake(rig.lanes) is (mode is NEXT)
    await rig.repository.ignore([failed], rig.now_ms)
    assert await any_awake(rig.lanes)


async def test_an_empty_lane_that_is_put_to_sleep_is_gone(rig: LaneRig) -> None:
    job = await rig.make("g")
    await rig.repository.cancel([job], rig.now_ms)
    await rig.lanes.let_sleep([G], MINE, rig.now_ms)
    assert await rig.state_of(G) is None


async def test_a_claimed_lane_is_not_put_to_sleep_by_others(rig: LaneRig) -> None:
    job = await rig.make("g")
    await rig.take(G)
    await rig.repository.cancel([job], rig.now_ms)
    await rig.lanes.let_sleep([G], OTHERS, rig.now_ms)
    assert await rig.state_of(G) == (False, 1)


async def test_a_paused_subscription_gives_nothing_and_goes_on_when_it_is_resumed(rig: LaneRig) -> None:
    subscription = rig.new_subscription()
    await rig.repository.add_subscription(subscription)
    await rig.make("g", subscription_id=subscription.id)
    lane = LaneKey(f"{subscription.id}:g", True)
    await rig.repository.pause_subscription(subscription.id)
    assert await rig.take(lane) == []
    assert await rig.state_of(lane) == (False, 0)
    await rig.repository.resume_subscription(subscription.id)
    assert await rig.take(lane) == [lane]


async def test_who_was_followed_by_another_leader_is_refused_everywhere(rig: LaneRig) -> None:
    job = await rig.make("g")
    turns = {G: await rig.turn_of(G)}
    old = await rig.repository.acquire_lease(SCHEDULER, "a", rig.now_ms, 1000)
    assert old is not None
    rig.clock.advance(2)
    await rig.repository.acquire_lease(SCHEDULER, "b", rig.now_ms, 1000)
    stale = LaneOwner("query/1", old.token)
    jobs = [await rig.claimed(job)]
    with pytest.raises(StaleLeader):
        await rig.lanes.claim(turns, stale, rig.now_ms, 1000)
    with pytest.raises(StaleLeader):
        await rig.lanes.mark_published(jobs, {G: None}, stale, rig.now_ms, rig.now_ms)
    with pytest.raises(StaleLeader):
        await rig.lanes.let_sleep([G], stale, rig.now_ms)
    with pytest.raises(StaleLeader):
        await rig.lanes.hold([(G, rig.now_ms)], stale)
    assert await rig.status(job) is PENDING
    assert await any_awake(rig.lanes)


async def test_a_range_covers_the_awake_lanes_of_a_stream_in_turn(rig: LaneRig) -> None:
    for number in range(7):
        await rig.make(f"g{number}")
    await rig.make("other", pool="other")

    ranges = await rig.lanes.awake_ranges("", rig.now_ms, 100, unlimited())

    assert [(part.stream, part.lanes) for part in ranges] == [
        (AwakeStream("DISPATCH-POOL", ""), 7),
        (AwakeStream("other", ""), 1),
    ]
    assert all(part.first_turn <= part.last_turn for part in ranges)
    few = await rig.lanes.awake_ranges("", rig.now_ms, 4, unlimited())
    assert sum(part.jobs for part in few) == 4


async def test_what_waits_is_counted_up_to_a_number(rig: LaneRig) -> None:
    for _ in range(3):
        await rig.make("g")
    await rig.make("g", scheduled_for_ms=rig.now_ms + 1000)
    assert (await rig.lanes.count_ready(100), await rig.lanes.count_ready(2)) == (3, 2)
