"""Hot standby on virtual time: who leads, for how long, and what stops when it ends."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.cluster.errors import LeaseUnavailable
from penstock.cluster.lease import FencedLease, Lease, SqlLease
from penstock.cluster.standby import RENEW_S, TTL_S, Standby
from penstock.domain.job_state import JobStatus
from penstock.edge.clock import Clock
from penstock.router.leadership import RouterLeadership as RouterLeadership
from penstock.testing.virtual_loop import LoopClock, run_virtual
from tests.rigs.scheduler import SchedulerRig, comes_true


class Reach:
    """The way to a lease, which may be cut, or take for ever."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.is_cut = False
        self.hangs = False

    async def acquire(self, ttl_s: float) -> int | None:
        await self._go()
        return await self._lease.acquire(ttl_s)

    async def renew(self, token: int, ttl_s: float) -> bool:
        await self._go()
        return await self._lease.renew(token, ttl_s)

    async def release(self, token: int) -> None:
        await self._go()
        await self._lease.release(token)

    async def _go(self) -> None:
        if self.is_cut:
            raise LeaseUnavailable("the line is cut")
        if self.hangs:
            await asyncio.Event().wait()


class Contender:
    """One node that contends, with a clock that the test may push on: a pause of the process."""

    def __init__(self, rig: SchedulerRig, name: str) -> None:
        self.paused_s = 0.0
        self.reach = Reach(SqlLease(rig.jobs, rig.clock, "scheduler", name))
        loop = asyncio.get_running_loop()
        self.standby = Standby(self.reach, seconds=lambda: loop.time() + self.paused_s)
        self.task = asyncio.create_task(self.standby.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def on(story: Callable[[SchedulerRig, Contender, Contender], Awaitable[None]]) -> None:
    """Run a story of two contenders; the first one leads."""

    async def main(clock: LoopClock) -> None:
        rig = SchedulerRig(clock)
        first = Contender(rig, "first")
        await first.standby.becomes(True)
        second = Contender(rig, "second")
        await asyncio.sleep(5)
        try:
            await story(rig, first, second)
        finally:
            await rig.stop()
            await first.stop()
            await second.stop()
            await rig.close()

    run_virtual(main)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_one_leads_and_the_other_waits_however_long() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        for _ in range(1000):
            await asyncio.sleep(1)
            assert (first.standby.is_primary(), second.standby.is_primary()) == (True, False)
        assert first.standby.token == 1

    on(story)


def test_a_lease_given_back_is_taken_over_within_a_second() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        stopped_s = now_s()
        await first.stop()
        assert not first.standby.is_primary()
        await second.standby.becomes(True)
        assert now_s() - stopped_s < 1.1
        assert second.standby.token == 2

    on(story)


def test_a_leader_that_cannot_reach_the_lease_has_stopped_before_the_next_one_starts() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        first.reach.is_cut = True
        cut_s = now_s()
        await first.standby.becomes(False)
        stopped_s = now_s()
        assert not second.standby.is_primary()
        assert TTL_S - RENEW_S - 5 < stopped_s - cut_s <= TTL_S
        await second.standby.becomes(True)
        assert now_s() > stopped_s
        assert now_s() - cut_s < TTL_S + 2

    on(story)


def test_a_lease_that_never_answers_ends_the_leadership_too() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        first.reach.hangs = True
        hung_s = now_s()
        await first.standby.becomes(False)
        assert now_s() - hung_s <= TTL_S
        await second.standby.becomes(True)
        assert not first.standby.is_primary()

    on(story)


def test_a_leader_out_of_reach_for_a_moment_goes_on_leading() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        first.reach.is_cut = True
        await asyncio.sleep(RENEW_S + 3)
        first.reach.is_cut = False
        await asyncio.sleep(100)
        assert (first.standby.is_primary(), first.standby.token) == (True, 1)

    on(story)


def test_a_paused_process_notices_as_soon_as_it_wakes() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        first.paused_s += TTL_S
        assert not first.standby.is_primary()

    on(story)


def test_who_lost_the_lease_gets_it_back_with_a_new_token_and_leads_again() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        first.reach.is_cut = True
        await second.standby.becomes(True)
        first.reach.is_cut = False
        await second.stop()
        await first.standby.becomes(True)
        assert first.standby.token == 3

    on(story)


def test_standing_down_gives_the_lease_back() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        await second.stop()
        first.standby.stand_down()
        assert not first.standby.is_primary()
        await first.standby.becomes(True)
        assert first.standby.token == 2

    on(story)


def test_a_standby_is_a_leadership_as_the_router_understands_it() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        leadership: RouterLeadership = first.standby
        assert leadership.is_primary()
        await leadership.becomes(True)

    on(story)


# What the lease gates


def test_only_the_leader_publishes_and_the_standby_takes_over_where_it_stopped() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        leader, other = rig.start(first.standby), rig.start(second.standby)
        before = await rig.make("g")
        await comes_true(lambda: before in rig.queue.ids)
        assert other.counts.claimed == 0
        first.reach.is_cut = True
        await first.standby.becomes(False)
        claimed = leader.counts.claimed
        while_nobody_leads = await rig.make("g")
        await comes_true(lambda: while_nobody_leads in rig.queue.ids)
        assert (leader.counts.claimed, other.counts.claimed) == (claimed, 1)
        assert rig.queue.ids == [before, while_nobody_leads]

    on(story)


def test_a_leader_that_lost_its_lease_while_it_was_paused_publishes_nothing_when_it_wakes() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        rig.queue.latency_s = 0.2
        leader = rig.start(first.standby)
        await asyncio.sleep(1)
        first.paused_s += TTL_S
        await rig.make("g")
        await asyncio.sleep(0.5)
        assert leader.counts.published == 0
        assert rig.queue.calls == []

    on(story)


def test_a_leader_that_was_followed_is_refused_by_the_database_and_stands_down() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        await second.stop()
        rig.start(first.standby)
        await asyncio.sleep(1)
        # Another has the lease, by a clock that is wrong; the first one knows nothing of it.
        lease = SqlLease(rig.jobs, Ahead(rig.clock), "scheduler", "third")
        assert await lease.acquire(TTL_S) == 2
        job_id = await rig.make("g")
        await asyncio.sleep(1)
        assert not first.standby.is_primary()
        assert (rig.queue.ids, await rig.status(job_id)) == ([], JobStatus.PENDING)
        await lease.release(2)
        await comes_true(lambda: rig.queue.ids == [job_id], 60)
        assert first.standby.token == 3

    on(story)


class Ahead:
    """A clock that goes wrong by an hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms() + 3_600_000


# Fencing of a lease that is kept elsewhere


def test_the_token_of_a_fenced_lease_is_the_fences_and_grows_with_every_leader() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        await first.stop()
        await second.stop()
        fenced = [
            FencedLease(
                SqlLease(rig.jobs, rig.clock, "elsewhere", name), SqlLease(rig.jobs, rig.clock, "scheduler", name)
            )
            for name in "ab"
        ]
        one = await fenced[0].acquire(TTL_S)
        assert (one, await fenced[1].acquire(TTL_S)) == (2, None)
        assert await fenced[0].renew(2, TTL_S)
        await fenced[0].release(2)
        assert await fenced[1].acquire(TTL_S) == 3
        assert not await fenced[0].renew(2, TTL_S)

    on(story)


def test_nobody_gets_a_fenced_lease_while_another_leads_by_the_fence() -> None:
    async def story(rig: SchedulerRig, first: Contender, second: Contender) -> None:
        elsewhere = SqlLease(rig.jobs, rig.clock, "elsewhere", "a")
        fenced = FencedLease(elsewhere, SqlLease(rig.jobs, rig.clock, "scheduler", "a"))
        assert await fenced.acquire(TTL_S) is None
        assert await elsewhere.acquire(TTL_S) == 2

    on(story)
