"""What every repository of jobs promises; one suite for SQLite and PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.cluster.errors import StaleLeader
from penstock.domain.job import BEFORE_ALL_ATTEMPTS, Attempt, CreatedJob
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL, DIRECT_TYPE, JobStatus
from penstock.domain.matching import Condition, EventFilter
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.retry import RetrySchedule
from penstock.domain.subscription import Pool
from penstock.events.errors import (
    EventNotFound,
    FeedNotFound,
    JobNotFound,
    PoolNotFound,
    SubscriptionNameTaken,
    UnknownSubscription,
    WrongJobStatus,
)
from penstock.events.store.database import Transaction
from penstock.events.store.repository.archive import Month
from penstock.events.store.repository.changes import KeptChange
from penstock.events.store.repository.deliveries import (
    Beginning,
    Done,
    EndedDelivery,
    TryFromQueue,
    TryLater,
    Verdict,
)
from penstock.events.store.repository.feeds import TopicFeed
from penstock.events.store.repository.leader import SCHEDULER
from penstock.events.store.repository.listing import JobFilter
from penstock.http.change import Change
from penstock.http.errors import BadCursor
from penstock.spark.database import SparkDatabase
from tests.rigs.job_database import Connect, connecting
from tests.rigs.jobs import BLOCK, IMMEDIATE, LEASE_S, NEXT, QUEUE_LEASE_S, JobRig, finish_all, unlimited

PENDING, QUEUED, PROCESSING = JobStatus.PENDING, JobStatus.QUEUED, JobStatus.PROCESSING
COMPLETED, ERROR, CANCELLED, EXPIRED = JobStatus.COMPLETED, JobStatus.ERROR, JobStatus.CANCELLED, JobStatus.EXPIRED


@pytest.fixture
async def rig(connect: Connect) -> AsyncIterator[JobRig]:
    rig = JobRig(connect())
    await rig.repository.open(rig.now_ms)
    yield rig
    await rig.repository.close()


class TestFeeds:
    async def test_a_feed_is_kept_changed_and_forgotten(self, rig: JobRig) -> None:
        orders = TopicFeed(topic="projects/p/topics/orders", type="orders", type_attribute="kind", tenant="acme")
        carts = TopicFeed(topic="projects/p/topics/carts", type="carts")
        for feed in (orders, carts):
            await rig.repository.put_feed(feed)
        assert await rig.repository.list_feeds() == [carts, orders]

        changed = TopicFeed(topic=orders.topic, type="other")
        await rig.repository.put_feed(changed)
        await rig.repository.delete_feed(carts.topic)

        assert await rig.repository.list_feeds() == [changed]
        with pytest.raises(FeedNotFound):
            await rig.repository.delete_feed(carts.topic)


class TestMaking:
    async def test_a_job_is_kept_as_it_was_made(self, rig: JobRig) -> None:
        new = rig.new_job(
            "customer 1",
            type="orders:created",
            tenant="acme",
            subscription_id="billing",
            sequence=7,
            mode=NEXT,
            pool="SLOW",
            payload=b'{"total": 3}\x00\xff',
            headers={"x-trace": "ü"},
            expires_at_ms=rig.now_ms + 60_000,
            idempotency_key="order 17",
        )
        await rig.make_many([new])

        job = await rig.repository.get_job(new.id)

        assert (job.status, job.group, job.group_key) == (PENDING, "customer 1", "billing:customer 1")
        for field in ("id", "target", "type", "tenant", "subscription_id", "sequence", "mode", "pool", "payload"):
            assert getattr(job, field) == getattr(new, field)
        assert (job.headers, job.idempotency_key, job.expires_at_ms) == (new.headers, "order 17", new.expires_at_ms)
        assert (job.attempt_count, job.delivery_count, job.dedup_id) == (0, 0, f"{new.id}:0")

    async def test_a_job_without_group_and_subscription_is_in_the_default_group_of_its_type(self, rig: JobRig) -> None:
        job = await rig.repository.get_job(await rig.make(None))

        assert (job.group, job.group_key) == (None, f"{DIRECT_TYPE}:default")

    async def test_the_same_idempotency_key_gives_the_same_job(self, rig: JobRig) -> None:
        first = await rig.make(idempotency_key="k", tenant="acme")
        other_tenant = await rig.make(idempotency_key="k")
        again, fresh = await rig.repository.create_jobs(
            [rig.new_job(idempotency_key="k", tenant="acme"), rig.new_job(idempotency_key="k2", tenant="acme")],
            rig.now_ms,
        )

        assert again == CreatedJob(first, False)
        assert fresh.is_new
        assert other_tenant != first
        assert sum((await rig.repository.counts()).values()) == 3

    async def test_one_call_with_a_key_twice_makes_one_job(self, rig: JobRig) -> None:
        made = await rig.repository.create_jobs([rig.new_job(idempotency_key="k") for _ in range(3)], rig.now_ms)

        assert len({created.id for created in made}) == 1
        assert [created.is_new for created in made] == [True, False, False]

    async def test_concurrent_calls_with_one_key_agree_on_the_job(self, rig: JobRig) -> None:
        ids = await asyncio.gather(*(rig.make(f"g{n}", idempotency_key="k") for n in range(10)))

        assert len(set(ids)) == 1
        assert (await rig.repository.counts())[PENDING] == 1

    async def test_thousands_of_jobs_are_made_in_one_call(self, rig: JobRig) -> None:
        made = await rig.make_many([rig.new_job(f"g{n % 50}") for n in range(3000)])

        assert len(made) == 3000
        assert (await rig.repository.counts())[PENDING] == 3000

    async def test_making_nothing_is_fine(self, rig: JobRig) -> None:
        assert await rig.repository.create_jobs([], rig.now_ms) == []

    async def test_a_call_is_kept_as_a_whole_or_not_at_all(self, rig: JobRig) -> None:
        with pytest.raises(Exception, match=r"job|change"):
            await rig.make_many([rig.new_job(), rig.new_job(sequence=2**70)])

        assert (await rig.repository.counts())[PENDING] == 0
        assert await rig.claim() == []

    async def test_an_unknown_job_is_not_found(self, rig: JobRig) -> None:
        with pytest.raises(JobNotFound, match="Job not found: nobody"):
            await rig.repository.get_job("nobody")


class TestEvents:
    async def test_an_event_is_kept_as_it_was_told(self, rig: JobRig) -> None:
        event = rig.new_event(
            external_id="order-17/1",
            subject="17",
            time_ms=5,
            data=b"\x00\xff",
            content_type="application/octet-stream",
            group="17",
            tenant="acme",
            attributes={"region": "eu"},
        )
        assert await rig.repository.publish([event], [], rig.now_ms) == [event.id]

        assert await rig.repository.get_event(event.id) == event

    async def test_an_event_without_a_name_of_its_own_is_named_by_its_id(self, rig: JobRig) -> None:
        event = rig.new_event()
        await rig.repository.add_events([event])

        assert (await rig.repository.get_event(event.id)).cloud_id == event.id

    async def test_an_unknown_event_is_not_found(self, rig: JobRig) -> None:
        with pytest.raises(EventNotFound):
            await rig.repository.get_event("nobody")

    async def test_an_event_told_twice_causes_its_jobs_once(self, rig: JobRig) -> None:
        first, again = (rig.new_event(external_id="17") for _ in range(2))
        for event in (first, again):
            kept = await rig.repository.publish([event], [rig.new_job(event_id=event.id)], rig.now_ms)
            assert kept == [first.id]

        assert (await rig.repository.counts())[PENDING] == 1

    async def test_an_event_told_twice_beside_a_new_one_keeps_its_id(self, rig: JobRig) -> None:
        first = rig.new_event(external_id="1")
        (kept,) = await rig.repository.publish([first], [], rig.now_ms)
        again, other = rig.new_event(external_id="1"), rig.new_event(external_id="2")

        assert await rig.repository.publish([again, other, other], [], rig.now_ms) == [kept, other.id, other.id]

    async def test_the_same_name_from_another_source_or_tenant_is_another_event(self, rig: JobRig) -> None:
        events = [
            rig.new_event(external_id="17"),
            rig.new_event(external_id="17", source="till"),
            rig.new_event(external_id="17", tenant="acme"),
        ]

        assert await rig.repository.publish(events, [], rig.now_ms) == [event.id for event in events]

    async def test_events_wait_for_their_fan_out_and_get_it_once(self, rig: JobRig) -> None:
        events = [rig.new_event() for _ in range(3)]
        await rig.repository.add_events(events)
        assert await rig.repository.count_events_to_fan_out(9) == 3
        done = []

        for _ in range(2):
            jobs = [rig.new_job(event_id=event.id) for event in events[:2]]
            done.append(await rig.repository.fan_out([event.id for event in events[:2]], jobs, rig.now_ms))

        assert done == [[event.id for event in events[:2]], []]
        assert await rig.repository.count_events_to_fan_out(9) == 1
        assert (await rig.repository.counts())[PENDING] == 2

    async def test_a_fan_out_leaves_a_job_that_is_there_alone(self, rig: JobRig) -> None:
        event = rig.new_event()
        await rig.repository.add_events([event])
        known, missing = rig.new_job(event_id=event.id), rig.new_job(event_id=event.id)
        await rig.repository.create_jobs([known], rig.now_ms)

        assert await rig.repository.fan_out([event.id], [known, missing], rig.now_ms) == [event.id]

        assert (await rig.repository.counts())[PENDING] == 2

    async def test_events_that_wait_are_counted_up_to_a_number(self, rig: JobRig) -> None:
        await rig.repository.add_events([rig.new_event() for _ in range(3)])
        await rig.repository.publish([rig.new_event()], [], rig.now_ms)

        assert [await rig.repository.count_events_to_fan_out(most) for most in (2, 9)] == [2, 3]

    async def test_a_fan_out_makes_the_jobs_of_events_that_still_wait_beside_others_that_do_not(
        self, rig: JobRig
    ) -> None:
        done, waiting = rig.new_event(), rig.new_event()
        await rig.repository.publish([done], [], rig.now_ms)
        await rig.repository.add_events([waiting])
        jobs = [rig.new_job(event_id=event.id) for event in (done, waiting)]

        assert await rig.repository.fan_out([done.id, waiting.id], jobs, rig.now_ms) == [waiting.id]

        assert [job.event_id for job in (await rig.repository.list_jobs(JobFilter(), None, 9)).jobs] == [waiting.id]

    async def test_of_two_who_fan_out_the_same_events_at_once_one_makes_the_jobs(self, rig: JobRig) -> None:
        events = [rig.new_event() for _ in range(200)]
        await rig.repository.add_events(events)
        ids = [event.id for event in events]

        found = await asyncio.gather(
            *(
                rig.repository.fan_out(order, [rig.new_job(event_id=event.id) for event in events], rig.now_ms)
                for order in (ids, ids[::-1], ids, ids[::-1])
            )
        )

        assert sorted(event_id for done in found for event_id in done) == ids
        assert (await rig.repository.counts())[PENDING] == 200

    async def test_jobs_in_the_archive_are_not_made_again(self, rig: JobRig) -> None:
        event = rig.new_event()
        await rig.repository.add_events([event])
        job = rig.new_job(event_id=event.id)
        await rig.repository.fan_out([event.id], [job], rig.now_ms)
        await rig.repository.cancel([job.id], rig.now_ms)
        rig.clock.advance(10)
        assert await rig.repository.archive_finished(rig.now_ms, rig.now_ms, 10) == 1

        assert await rig.repository.fan_out([event.id], [job], rig.now_ms) == []

        assert sum((await rig.repository.counts()).values()) == 0

    async def test_published_events_do_not_wait_for_a_fan_out(self, rig: JobRig) -> None:
        await rig.repository.publish([rig.new_event()], [], rig.now_ms)

        assert await rig.repository.count_events_to_fan_out(9) == 0

    async def test_old_events_are_forgotten_once_no_job_needs_them(self, rig: JobRig) -> None:
        needed, done, waiting = rig.new_event(), rig.new_event(), rig.new_event()
        await rig.repository.publish([needed, done], [rig.new_job(event_id=needed.id)], rig.now_ms)
        await rig.repository.add_events([waiting])
        rig.clock.advance(10)

        assert await rig.repository.forget_events(rig.now_ms, 10) == 1

        with pytest.raises(EventNotFound):
            await rig.repository.get_event(done.id)
        await rig.repository.get_event(needed.id)
        await rig.repository.get_event(waiting.id)


class TestClaiming:
    async def test_jobs_go_by_sequence_then_age_then_id(self, rig: JobRig) -> None:
        third = await rig.make()
        fourth = await rig.make()
        rig.clock.advance(1)
        fifth = await rig.make()
        second = await rig.make(sequence=50)
        first = await rig.make(sequence=-1)

        assert await rig.claim_ids() == [first, second, third, fourth, fifth]

    async def test_a_job_of_a_claimed_lane_is_pending_and_not_written(self, rig: JobRig) -> None:
        job_id = await rig.make("g", subscription_id="s", pool="SLOW", mode=NEXT)
        made = await rig.repository.get_job(job_id)

        (claimed,) = await rig.claim(owner="node 1")

        assert (claimed.id, claimed.group_key, claimed.mode, claimed.pool) == (job_id, "s:g", NEXT, "SLOW")
        job = await rig.repository.get_job(job_id)
        assert (job.status, job) == (PENDING, made)
        assert claimed.dedup_id == job.dedup_id

    @pytest.mark.parametrize("mode", [NEXT, BLOCK])
    async def test_an_ordered_group_gives_nothing_more_while_some_of_it_is_being_published(
        self, rig: JobRig, mode: object
    ) -> None:
        ids = [await rig.make(mode=mode) for _ in range(4)]
        first, second = await rig.claim(per_lane=2)
        late = await rig.make(mode=mode)
        assert await rig.claim() == []

        await rig.claims().published([first], ())
        assert await rig.claim() == []
        assert await rig.queue([second]) == [ids[1]]

        assert await rig.claim_ids() == [*ids[2:], late]

    async def test_immediate_jobs_do_not_wait_for_deliveries(self, rig: JobRig) -> None:
        ids = [await rig.make(mode=IMMEDIATE) for _ in range(3)]

        for job_id in ids:
            (job,) = await rig.claim(most=1)
            assert await rig.queue([job]) == [job_id]
        assert await rig.claim() == []

    async def test_immediate_jobs_do_not_wait_for_ordered_ones_of_their_group(self, rig: JobRig) -> None:
        ordered = await rig.make()
        assert await rig.claim_ids() == [ordered]
        at_once = await rig.make(mode=IMMEDIATE)

        assert await rig.claim_ids() == [at_once]

    async def test_jobs_of_high_priority_go_before_the_others_of_their_group(self, rig: JobRig) -> None:
        regular = [await rig.make(), await rig.make(sequence=-(2**31 - 1))]
        high = [await rig.make(high_priority=True), await rig.make(high_priority=True, sequence=-(2**31 - 1))]
        last = await rig.make(high_priority=True, sequence=2**31 - 1)
        other = await rig.make("other")

        claimed = await rig.claim()

        assert [job.id for job in claimed if job.id != other] == [high[1], high[0], last, regular[1], regular[0]]
        assert {job.id for job in claimed if job.high_priority} == {*high, last}

    async def test_a_regular_job_in_the_queue_waits_for_one_of_high_priority(self, rig: JobRig) -> None:
        regular = await rig.make()
        await rig.queue_all()
        high = await rig.make(high_priority=True)

        assert (await rig.begin(regular)).what is Beginning.HELD_BACK
        assert await rig.queue_all() == [high, regular]

    async def test_groups_take_turns(self, rig: JobRig) -> None:
        deep = [await rig.make("deep") for _ in range(6)]
        others = [await rig.make(f"other {n}") for n in range(3)]

        first = await rig.claim(most=2)
        second = await rig.claim(most=2)
        await rig.queue(first)
        third = await rig.claim(most=2)

        assert [job.id for job in first] == [deep[0], others[0]]
        assert [job.id for job in second] == others[1:]
        assert [job.id for job in third] == deep[1:3]

    async def test_a_batch_is_shared_by_the_groups_that_have_jobs(self, rig: JobRig) -> None:
        ids = {group: [await rig.make(group) for _ in range(4)] for group in ("a", "b")}

        assert await rig.claim_ids(most=4) == [*ids["a"][:2], *ids["b"][:2]]

    async def test_in_a_large_batch_a_group_gives_a_few_jobs_when_it_is_its_turn(self, rig: JobRig) -> None:
        deep = await rig.make_many([rig.new_job(f"deep {n % 600}") for n in range(2400)])

        runs = await rig.repository.lanes.read(rig.now_ms, 1000, unlimited())

        assert [[job.id for job in run.jobs] for run in runs] == [deep[n::600] for n in range(250)]

    async def test_groups_with_one_job_each_fill_a_large_batch(self, rig: JobRig) -> None:
        ids = await rig.make_many([rig.new_job(f"g{n}") for n in range(600)])

        runs = await rig.repository.lanes.read(rig.now_ms, 1000, unlimited())

        assert [job.id for run in runs for job in run.jobs] == ids[: len(runs)]
        assert len(runs) > 500

    async def test_no_group_gives_more_than_its_limit(self, rig: JobRig) -> None:
        ids = [await rig.make() for _ in range(5)]

        assert await rig.claim_ids(most=100, per_lane=3) == ids[:3]

    async def test_the_same_key_under_two_subscriptions_is_two_groups(self, rig: JobRig) -> None:
        failing, healthy = await rig.make(subscription_id="s1"), await rig.make(subscription_id="s2")
        blocked, free = await rig.make(subscription_id="s1"), await rig.make(subscription_id="s2")
        assert await rig.queue_all() == [failing, blocked, healthy, free]
        await rig.fail(failing)
        await rig.deliver(healthy)

        assert (await rig.begin(blocked)).what is Beginning.HELD_BACK
        assert (await rig.begin(free)).what is Beginning.BEGUN

    async def test_a_job_for_later_waits_for_its_time_and_holds_nobody_up(self, rig: JobRig) -> None:
        later = await rig.make(scheduled_for_ms=rig.now_ms + 5000)
        now = await rig.make()
        assert await rig.repository.next_due_ms() == rig.now_ms + 5000
        assert await rig.queue_all() == [now]

        rig.clock.advance(5)

        assert await rig.queue_all() == [later]
        assert await rig.repository.next_due_ms() is None

    async def test_a_lapsed_claim_can_be_claimed_by_another_with_the_same_dedup_id(self, rig: JobRig) -> None:
        await rig.make()
        (lost,) = await rig.claim(owner="a")
        assert await rig.repository.next_due_ms() == rig.now_ms + LEASE_S * 1000
        rig.clock.advance(LEASE_S)

        (again,) = await rig.claim(owner="b")

        assert again.dedup_id == lost.dedup_id
        # What the first one says late is a fact, but the lane is the other one's.
        later = await rig.make()
        assert await rig.queue([lost], owner="a") == [lost.id]
        assert await rig.claim(owner="c") == []
        assert await rig.queue([again], owner="b") == []
        assert await rig.claim_ids() == [later]

    async def test_a_released_job_is_claimed_again_before_its_followers(self, rig: JobRig) -> None:
        ids = [await rig.make() for _ in range(3)]
        jobs = await rig.claim()
        await rig.claims().published(jobs[:1], ())

        await rig.give_back(jobs[1:])

        assert await rig.claim_ids() == ids[1:]

    async def test_an_immediate_job_that_was_released_is_claimed_again(self, rig: JobRig) -> None:
        job_id = await rig.make(mode=IMMEDIATE)
        jobs = await rig.claim()
        assert await rig.claim() == []

        await rig.give_back(jobs)

        assert await rig.claim_ids() == [job_id]

    async def test_blocked_groups_never_fill_a_batch(self, rig: JobRig) -> None:
        heads = await rig.make_many([rig.new_job(f"blocked {n}") for n in range(20)])
        await rig.queue_all()
        for head in heads:
            await rig.fail(head)
        await rig.make_many([rig.new_job(f"blocked {n % 20}") for n in range(100)])
        healthy = await rig.make("healthy")

        assert await rig.claim_ids(most=1) == [healthy]
        assert await rig.claim_ids() == []

    async def test_a_new_job_does_not_write_a_lane_that_is_awake(self, rig: JobRig) -> None:
        written: list[int] = []

        def call(tx: Transaction) -> None:
            lane = ("s:a", True, "s", DEFAULT_DISPATCH_POOL, *tx.take_turns(1))
            written.append(tx.bulk("call_lanes", [lane]))

        database = rig.repository.lanes._database
        await database.write(call)
        await database.write(call)
        assert written == [1, 0]

    async def test_two_claims_at_once_never_share_a_job(self, rig: JobRig) -> None:
        await rig.make_many([rig.new_job(f"g{n % 40}") for n in range(400)])

        batches = await asyncio.gather(*(rig.claim(most=50, per_lane=1, owner=f"node {n}") for n in range(8)))

        ids = [job.id for batch in batches for job in batch]
        groups = [job.group_key for batch in batches for job in batch]
        assert len(ids) == len(set(ids))
        assert len(groups) == len(set(groups))

    async def test_claiming_and_making_at_once_forgets_no_job(self, rig: JobRig) -> None:
        async def make() -> None:
            for n in range(40):
                await rig.make(f"g{n % 3}", mode=(BLOCK, IMMEDIATE)[n % 2])

        async def claim() -> None:
            while making.is_set() or await rig.claim(most=1):
                await rig.queue(await rig.claim(most=3))

        making = asyncio.Event()
        making.set()
        claims = asyncio.gather(claim(), claim())
        await asyncio.gather(make(), make())
        making.clear()
        await claims

        rig.clock.advance(LEASE_S)
        await rig.queue_all()
        assert (await rig.repository.counts())[QUEUED] == 80


class TestErrorsAndModes:
    async def failed_group(self, rig: JobRig, mode: object) -> list[str]:
        """Three jobs of a group; the first is in ERROR, the others wait."""
        first = await rig.make(mode=mode)
        await rig.queue_all()
        await rig.fail(first)
        return [first, await rig.make(mode=mode), await rig.make(mode=mode)]

    async def test_an_error_blocks_the_block_on_error_jobs_behind_it(self, rig: JobRig) -> None:
        await self.failed_group(rig, BLOCK)

        assert await rig.claim() == []

    @pytest.mark.parametrize("mode", [NEXT, IMMEDIATE])
    async def test_an_error_blocks_no_job_of_another_mode(self, rig: JobRig, mode: object) -> None:
        _, *followers = await self.failed_group(rig, mode)

        assert await rig.claim_ids() == followers

    async def test_in_a_mixed_group_only_the_block_on_error_jobs_wait(self, rig: JobRig) -> None:
        await self.failed_group(rig, BLOCK)
        skipping = await rig.make(mode=NEXT)

        assert await rig.claim_ids() == [skipping]

    async def test_jobs_before_the_error_are_not_blocked(self, rig: JobRig) -> None:
        await self.failed_group(rig, BLOCK)
        earlier = await rig.make(sequence=1)

        assert await rig.claim_ids() == [earlier]

    async def test_a_retry_by_a_person_goes_first_and_unblocks_the_group(self, rig: JobRig) -> None:
        ids = await self.failed_group(rig, BLOCK)
        before = await rig.repository.get_job(ids[0])

        await rig.repository.retry([ids[0]], rig.now_ms)

        job = await rig.repository.get_job(ids[0])
        assert (job.status, job.attempt_count, job.finished_at_ms) == (PENDING, 0, None)
        assert job.dedup_id != before.dedup_id
        # Alone: if it fails again, the others would come back from the queue.
        assert await rig.claim_ids() == ids[:1]

    async def test_ignoring_the_error_lets_the_group_move_on(self, rig: JobRig) -> None:
        ids = await self.failed_group(rig, BLOCK)

        await rig.repository.ignore([ids[0]], rig.now_ms)

        assert await rig.status(ids[0]) is CANCELLED
        assert await rig.claim_ids() == ids[1:]

    async def test_ignoring_an_immediate_job_unblocks_the_ordered_ones(self, rig: JobRig) -> None:
        failed = await rig.make(mode=IMMEDIATE)
        await rig.queue_all()
        await rig.fail(failed)
        blocked = await rig.make()
        assert await rig.claim() == []

        await rig.repository.ignore([failed], rig.now_ms)

        assert await rig.claim_ids() == [blocked]

    async def test_a_whole_group_is_retried_in_order(self, rig: JobRig) -> None:
        ids = [await rig.make(mode=NEXT) for _ in range(3)]
        other = await rig.make("other", mode=NEXT)
        await rig.queue_all()
        for job_id in (*ids, other):
            await rig.fail(job_id)
        key = (await rig.repository.get_job(ids[0])).group_key

        assert await rig.repository.retry_group(key, rig.now_ms, 100) == ids

        assert await rig.claim_ids() == ids
        assert await rig.status(other) is ERROR

    async def test_a_job_that_waits_for_its_next_attempt_keeps_its_block_on_error_followers(self, rig: JobRig) -> None:
        first = await rig.make()
        await rig.queue_all()
        second = await rig.make()
        await rig.fail_for_now(first, delay_s=30)
        assert await rig.claim() == []

        rig.clock.advance(30)

        again = await rig.claim()
        assert [job.id for job in again] == [first]
        await rig.queue(again)
        await rig.deliver(first)
        assert await rig.claim_ids() == [second]

    async def test_a_job_that_waits_for_its_next_attempt_is_passed_by_next_on_error_ones(self, rig: JobRig) -> None:
        first = await rig.make(mode=NEXT)
        await rig.queue_all()
        second = await rig.make(mode=NEXT)
        await rig.fail_for_now(first, delay_s=30)

        assert await rig.queue_all() == [second]
        rig.clock.advance(30)
        assert await rig.queue_all() == [first]

    async def test_a_follower_of_a_job_that_is_given_up_while_waiting_moves_on(self, rig: JobRig) -> None:
        first = await rig.make()
        await rig.queue_all()
        second = await rig.make()
        await rig.fail_for_now(first, delay_s=3600)
        assert await rig.claim() == []

        await rig.repository.cancel([first], rig.now_ms)

        assert await rig.claim_ids() == [second]


class TestDelivering:
    async def test_a_delivery_begins_and_ends(self, rig: JobRig) -> None:
        job_id = await rig.make(payload=b"{}")
        await rig.queue_all()
        assert await rig.status(job_id) is QUEUED

        begin = await rig.begin(job_id)
        assert (begin.what, begin.job and begin.job.status) == (Beginning.BEGUN, PROCESSING)
        assert begin.job is not None
        assert (begin.job.delivery_count, begin.job.payload) == (1, b"{}")
        assert await rig.status(job_id) is QUEUED
        attempt = Attempt(
            number=1,
            outcome=AttemptOutcome.DELIVERED,
            at_ms=rig.now_ms,
            duration_ms=7,
            status_code=204,
            response="thanks",
        )
        assert await finish_all(rig.repository, [EndedDelivery(job_id, attempt, Done(COMPLETED), rig.now_ms)]) == [True]

        job = await rig.repository.get_job(job_id)
        assert (job.status, job.attempt_count, job.finished_at_ms) == (COMPLETED, 1, rig.now_ms)
        assert (job.owner, job.lease_until_ms) == (None, None)
        assert await rig.repository.attempts_of(job_id, BEFORE_ALL_ATTEMPTS, 10) == [attempt]

    async def test_a_hundred_deliveries_end_together_but_for_one_that_moved_on(self, rig: JobRig) -> None:
        ids = await rig.make_many([rig.new_job(f"g{number}") for number in range(100)])
        await rig.queue_all()
        begins = await rig.begin_all(ids)
        late = ids[70]
        await rig.repository.cancel([late], rig.now_ms)

        ended = [rig.ended(begin.job, Done(COMPLETED), AttemptOutcome.DELIVERED) for begin in begins]
        kept = await finish_all(rig.repository, ended)

        assert kept == [job_id != late for job_id in ids]
        for job_id in ids:
            assert await rig.status(job_id) is (CANCELLED if job_id == late else COMPLETED)
            assert len(await rig.repository.attempts_of(job_id, BEFORE_ALL_ATTEMPTS, 10)) == (job_id != late)

    async def test_a_late_write_changes_nothing(self, rig: JobRig) -> None:
        job_id = await rig.make()
        await rig.queue_all()
        begin = await rig.begin(job_id)
        assert await rig.finish(begin.job, Done(COMPLETED), AttemptOutcome.DELIVERED)

        assert not await rig.finish(begin.job, Done(ERROR), AttemptOutcome.FAILED)

        assert await rig.status(job_id) is COMPLETED
        assert len(await rig.repository.attempts_of(job_id, BEFORE_ALL_ATTEMPTS, 10)) == 1

    async def test_of_two_deliveries_the_one_that_ends_first_counts(self, rig: JobRig) -> None:
        job_id = await rig.make()
        await rig.queue_all()
        thought_lost = await rig.begin(job_id)
        rig.clock.advance(QUEUE_LEASE_S)
        assert await recover_lost(rig, 10) == [job_id]
        await rig.queue_all()
        newer = await rig.begin(job_id)

        assert await rig.finish(thought_lost.job, Done(COMPLETED), AttemptOutcome.DELIVERED)
        assert not await rig.finish(newer.job, Done(ERROR), AttemptOutcome.FAILED)

        assert await rig.status(job_id) is COMPLETED
        assert len(await rig.repository.attempts_of(job_id, BEFORE_ALL_ATTEMPTS, 10)) == 1

    async def test_the_end_of_an_older_delivery_does_not_end_the_next_one(self, rig: JobRig) -> None:
        job_id = await rig.make()
        await rig.queue_all()
        older = await rig.begin(job_id)
        await rig.deliver(job_id, TryFromQueue(rig.now_ms + 90_000))
        await rig.begin(job_id)

        assert not await rig.finish(older.job, Done(COMPLETED), AttemptOutcome.DELIVERED)
        assert await rig.status(job_id) is QUEUED

    async def test_a_delivery_cannot_end_in_a_status_that_is_no_end_of_one(self, rig: JobRig) -> None:
        job_id = await rig.make()
        await rig.queue_all()
        begin = await rig.begin(job_id)

        with pytest.raises(ValueError, match="CANCELLED"):
            await rig.finish(begin.job, Done(CANCELLED), AttemptOutcome.FAILED)

    @pytest.mark.parametrize("end", [COMPLETED, ERROR, EXPIRED])
    async def test_a_job_that_is_over_is_not_delivered(self, rig: JobRig, end: JobStatus) -> None:
        job_id = await rig.make()
        await rig.queue_all()
        await rig.deliver(job_id, Done(end))

        begin = await rig.begin(job_id)

        assert (begin.what, begin.job and begin.job.status) == (Beginning.FINAL, end)

    async def test_an_unknown_job_is_told_so(self, rig: JobRig) -> None:
        assert (await rig.begin("nobody")).what is Beginning.UNKNOWN

    async def test_a_job_can_arrive_before_the_scheduler_has_marked_it(self, rig: JobRig) -> None:
        first, second = await rig.make(), await rig.make()
        jobs = await rig.claim(per_lane=1)

        await rig.deliver(first)

        assert await rig.queue(jobs) == []
        assert await rig.status(first) is COMPLETED
        assert await rig.claim_ids() == [second]

    async def test_a_job_is_due_when_it_was_published_though_the_clock_of_its_router_is_behind(
        self, rig: JobRig
    ) -> None:
        again = await rig.make("g1")
        await rig.queue_all()
        await rig.fail_for_now(again, delay_s=5)
        rig.clock.advance(5)
        new = await rig.make("g2")
        jobs = await rig.claim()

        begins = await rig.begin_all([again, new], behind_ms=500)

        # Its pointer would be gone otherwise, and the scheduler would mark it as queued.
        assert [begin.what for begin in begins] == [Beginning.BEGUN, Beginning.BEGUN]
        await rig.queue(jobs)
        for begin in begins:
            assert await rig.finish(begin.job, Done(COMPLETED), AttemptOutcome.DELIVERED)

    async def test_a_job_whose_publish_was_thought_to_have_failed_is_delivered_all_the_same(self, rig: JobRig) -> None:
        job_id = await rig.make()
        await rig.give_back(await rig.claim())

        await rig.deliver(job_id)
        assert await rig.claim() == []

    async def test_a_deferred_attempt_is_kept_but_not_spent(self, rig: JobRig) -> None:
        job_id = await rig.make()
        await rig.queue_all()
        begin = await rig.begin(job_id)
        until_ms = rig.now_ms + 90_000
        assert await rig.finish(begin.job, TryFromQueue(until_ms), AttemptOutcome.DEFERRED)

        job = await rig.repository.get_job(job_id)
        assert (job.status, job.attempt_count, job.delivery_count) == (QUEUED, 0, 1)
        assert (job.lease_until_ms, job.dedup_id) == (until_ms, f"{job_id}:0")
        await rig.deliver(job_id)
        numbers = [attempt.number for attempt in await rig.repository.attempts_of(job_id, BEFORE_ALL_ATTEMPTS, 10)]
        assert numbers == [1, 2]
        assert (await rig.repository.get_job(job_id)).attempt_count == 1

    async def test_a_job_to_be_tried_later_is_published_anew_with_another_dedup_id(self, rig: JobRig) -> None:
        job_id = await rig.make()
        await rig.queue_all()
        await rig.fail_for_now(job_id, delay_s=5)
        assert (await rig.repository.get_job(job_id)).attempt_count == 1
        assert (await rig.begin(job_id)).what is Beginning.NOT_DUE
        rig.clock.advance(5)

        (job,) = await rig.claim()

        assert job.dedup_id == f"{job_id}:1"

    async def test_a_follower_reaching_its_delivery_goes_back_while_an_earlier_job_is_in_error(
        self, rig: JobRig
    ) -> None:
        first, second = await rig.make(), await rig.make()
        await rig.queue_all()
        await rig.fail(first)

        begin = await rig.begin(second)

        assert (begin.what, begin.job and begin.job.status) == (Beginning.HELD_BACK, PENDING)
        assert (await rig.repository.get_job(second)).dedup_id == f"{second}:1"
        assert await rig.claim() == []
        await rig.repository.ignore([first], rig.now_ms)
        assert await rig.claim_ids() == [second]

    @pytest.mark.parametrize("mode", [NEXT, BLOCK])
    async def test_a_follower_reaching_its_delivery_first_goes_back(self, rig: JobRig, mode: object) -> None:
        first, second = await rig.make(mode=mode), await rig.make(mode=mode)
        await rig.queue_all()

        assert (await rig.begin(second)).what is Beginning.HELD_BACK
        await rig.deliver(first)
        assert await rig.queue_all() == [second]
        assert (await rig.begin(second)).what is Beginning.BEGUN

    async def test_a_retry_waits_for_its_own_delay_however_often_the_job_came_back_before(self, rig: JobRig) -> None:
        first, second = await rig.make(), await rig.make()
        await rig.queue_all()
        for _ in range(8):
            assert (await rig.begin(second)).what is Beginning.HELD_BACK
            rig.clock.advance(10)
            assert await rig.queue_all() == [second]
        await rig.deliver(first)

        await rig.deliver(second, TryLater(rig.now_ms + 1000))
        rig.clock.advance(1)

        assert await rig.claim_ids() == [second]

    async def test_immediate_jobs_are_delivered_in_any_order(self, rig: JobRig) -> None:
        first, second = await rig.make(mode=IMMEDIATE), await rig.make(mode=IMMEDIATE)
        await rig.queue_all()

        await rig.deliver(second)
        await rig.deliver(first)

    async def test_a_job_of_a_paused_subscription_goes_back(self, rig: JobRig) -> None:
        subscription = rig.new_subscription()
        await rig.repository.add_subscription(subscription)
        job_id = await rig.make(subscription_id=subscription.id)
        await rig.queue_all()
        await rig.repository.pause_subscription(subscription.id)

        assert (await rig.begin(job_id)).what is Beginning.HELD_BACK
        assert await rig.claim() == []
        await rig.repository.resume_subscription(subscription.id)
        assert await rig.claim_ids() == [job_id]


class TestDeliveringMany:
    async def test_jobs_of_different_lanes_begin_at_once_with_their_events(self, rig: JobRig) -> None:
        events = [rig.new_event(data=data, external_id=str(data)) for data in (b"1", b"2")]
        jobs = [rig.new_job(f"g{n}", event_id=event.id) for n, event in enumerate(events)]
        await rig.repository.publish(events, jobs, rig.now_ms)
        direct = await rig.make("g2", payload=b"{}")
        await rig.queue_all()

        begun = await rig.begin_all([jobs[0].id, direct, jobs[1].id])

        assert [begin.what for begin in begun] == [Beginning.BEGUN] * 3
        assert [begin.event for begin in begun] == [events[0], None, events[1]]

    @pytest.mark.parametrize("mode", [NEXT, BLOCK])
    @pytest.mark.parametrize("marked", [True, False])
    async def test_of_an_ordered_lane_one_begins(self, rig: JobRig, mode: object, marked: bool) -> None:
        first, second, third = [await rig.make(mode=mode) for _ in range(3)]
        if marked:
            await rig.queue_all()

        begun = await rig.begin_all([second, first, third])

        assert [begin.what.name for begin in begun] == ["HELD_BACK", "BEGUN", "HELD_BACK"]
        assert [await rig.status(job_id) for job_id in (second, third)] == [PENDING, PENDING]

    async def test_of_tried_jobs_that_pass_each_other_the_one_that_came_first_begins(self, rig: JobRig) -> None:
        first, second = await rig.make(mode=NEXT), await rig.make(mode=NEXT)
        await rig.queue_all()
        await rig.fail_for_now(first, delay_s=1)
        await rig.fail_for_now(second, delay_s=1)
        rig.clock.advance(1)
        assert sorted(await rig.queue_all()) == [first, second]

        begun = (await rig.repository.begin([second, first], rig.now_ms)).begun

        assert list(begun) == [second]

    async def test_unordered_jobs_of_a_group_begin_together(self, rig: JobRig) -> None:
        ids = [await rig.make(mode=IMMEDIATE) for _ in range(3)]
        await rig.queue_all()

        assert {begin.what for begin in await rig.begin_all(ids)} == {Beginning.BEGUN}

    async def test_every_reason_not_to_begin_has_its_own_answer(self, rig: JobRig) -> None:
        done, late = [await rig.make(f"g{n}", expires_at_ms=rig.now_ms + 5000) for n in (0, 2)]
        first = await rig.make("g1")
        not_due = await rig.make("g3", scheduled_for_ms=rig.now_ms + 60_000)
        await rig.queue_all()
        await rig.deliver(done)
        rig.clock.advance(6)
        follower = await rig.make("g1")
        behind_late = await rig.make("g2")

        answers = await rig.begin_all([done, first, late, not_due, "nobody", follower, behind_late])

        names = [answer.what.name for answer in answers]
        assert names == ["FINAL", "BEGUN", "FINAL", "NOT_DUE", "UNKNOWN", "HELD_BACK", "BEGUN"]
        assert await rig.status(late) is EXPIRED

    async def test_of_many_ends_only_those_of_jobs_that_moved_on_are_refused(self, rig: JobRig) -> None:
        jobs = [await rig.make(f"g{n}") for n in range(3)]
        await rig.queue_all()
        begun = await rig.begin_all(jobs)
        await rig.finish(begun[1].job, Done(ERROR), AttemptOutcome.FAILED)
        late = [rig.ended(begin.job, Done(COMPLETED), AttemptOutcome.DELIVERED) for begin in begun]

        assert await finish_all(rig.repository, [*late, late[0]]) == [True, False, True, False]

        assert [await rig.status(job_id) for job_id in jobs] == [COMPLETED, ERROR, COMPLETED]
        for job_id in jobs:
            assert len(await rig.repository.attempts_of(job_id, BEFORE_ALL_ATTEMPTS, 10)) == 1

    async def test_ends_of_every_kind_are_kept_at_once(self, rig: JobRig) -> None:
        verdicts: list[Verdict] = [
            Done(COMPLETED),
            Done(ERROR),
            TryLater(rig.now_ms + 7000),
            TryFromQueue(rig.now_ms + 9000),
        ]
        jobs = [await rig.make(f"g{n}") for n in range(4)]
        await rig.queue_all()
        begun = await rig.begin_all(jobs)
        outcomes = [AttemptOutcome.DELIVERED, *[AttemptOutcome.FAILED] * 2, AttemptOutcome.DEFERRED]

        ended = [rig.ended(*each) for each in zip([b.job for b in begun], verdicts, outcomes, strict=True)]
        assert all(await finish_all(rig.repository, ended))

        found = [await rig.repository.get_job(job_id) for job_id in jobs]
        assert [job.status for job in found] == [COMPLETED, ERROR, PENDING, QUEUED]
        assert [job.attempt_count for job in found] == [1, 1, 1, 0]
        assert [job.publish_round for job in found] == [0, 0, 1, 0]
        assert (found[2].due_at_ms, found[3].lease_until_ms) == (rig.now_ms + 7000, rig.now_ms + 9000)

    async def test_hundreds_begin_and_end_at_once(self, rig: JobRig) -> None:
        ids = await rig.make_many([rig.new_job(f"g{n % 300}") for n in range(600)])
        await rig.queue_all()

        begun = [begin for begin in await rig.begin_all(ids) if begin.what is Beginning.BEGUN]

        assert [begin.job and begin.job.id for begin in begun] == ids[:300]
        ended = [rig.ended(begin.job, Done(COMPLETED), AttemptOutcome.DELIVERED) for begin in begun]
        assert all(await finish_all(rig.repository, ended))
        assert (await rig.repository.counts())[COMPLETED] == 300

    async def test_a_change_of_a_subscription_is_counted(self, rig: JobRig) -> None:
        async def changes() -> int:
            return (await rig.repository.begin(["nobody"], rig.now_ms)).subscription_changes

        subscription = rig.new_subscription()
        seen = [await changes()]
        for change in (
            rig.repository.add_subscription(subscription),
            rig.repository.change_subscription(rig.new_subscription(id=subscription.id, target="https://b.example")),
            rig.repository.pause_subscription(subscription.id),
            rig.repository.resume_subscription(subscription.id),
            rig.repository.delete_subscription(subscription.id),
        ):
            await change
            seen.append(await changes())

        assert len(set(seen)) == 6
        assert await changes() == seen[-1]

    async def test_subscriptions_are_read_again_when_one_has_changed(self, rig: JobRig) -> None:
        first, second = rig.new_subscription(), rig.new_subscription(name="second")
        await rig.repository.add_subscription(first)
        read = await rig.repository.changed_subscriptions(-1)

        assert read is not None
        assert [each.id for each in read.subscriptions] == [first.id]
        assert await rig.repository.changed_subscriptions(read.changes) is None
        await rig.repository.add_subscription(second)
        again = await rig.repository.changed_subscriptions(read.changes)
        assert again is not None
        assert [each.id for each in again.subscriptions] == [first.id, second.id]


async def recover_lost(rig: JobRig, most: int = 10) -> list[str]:
    """Recover what is stale while the queue is empty."""
    return await rig.repository.recover_stale(rig.now_ms, most, settled={DEFAULT_DISPATCH_POOL: rig.now_ms})


class TestLeases:
    async def test_a_queued_job_is_not_recovered_while_its_pointer_may_be_in_the_queue(self, rig: JobRig) -> None:
        job_id = await rig.make(pool="orders")
        await rig.queue_all()
        queued_ms = rig.now_ms
        rig.clock.advance(QUEUE_LEASE_S)
        assert await rig.repository.stale_pools(rig.now_ms, "", 10) == ["orders"]
        assert await rig.repository.stale_pools(rig.now_ms, "orders", 10) == []

        for settled in ({}, {"orders": queued_ms}, {"other": rig.now_ms}):
            assert await rig.repository.recover_stale(rig.now_ms, 10, settled=settled) == []
        assert await rig.repository.recover_stale(rig.now_ms, 10, settled={"orders": queued_ms + 1}) == [job_id]
        assert await rig.repository.stale_pools(rig.now_ms, "", 10) == []

    async def test_a_queued_job_whose_lease_ran_out_is_pending_again(self, rig: JobRig) -> None:
        job_id = await rig.make()
        await rig.queue_all()
        rig.clock.advance(QUEUE_LEASE_S - 1)
        assert await recover_lost(rig) == []
        rig.clock.advance(1)

        assert await recover_lost(rig) == [job_id]

        (job,) = await rig.claim()
        assert (job.id, job.dedup_id) == (job_id, f"{job_id}:1")

    async def test_recovery_takes_no_more_than_it_is_told_the_longest_overdue_first(self, rig: JobRig) -> None:
        early = [await rig.make(f"g{n}") for n in range(2)]
        await rig.queue_all()
        rig.clock.advance(1)
        late = await rig.make("late")
        await rig.queue_all()
        rig.clock.advance(QUEUE_LEASE_S)

        assert sorted(await recover_lost(rig, 2)) == early
        assert await recover_lost(rig, 2) == [late]

    async def test_a_job_that_is_known_to_be_on_its_way_is_not_recovered(self, rig: JobRig) -> None:
        job_id = await rig.make()
        await rig.queue_all()
        rig.clock.advance(QUEUE_LEASE_S)
        assert await rig.repository.extend_leases([job_id], rig.now_ms + 1) == [job_id]

        assert await recover_lost(rig) == []

    async def test_a_lease_is_never_shortened_and_a_finished_job_has_none(self, rig: JobRig) -> None:
        job_id = await rig.make()
        await rig.queue_all()
        assert await rig.repository.extend_leases([job_id], rig.now_ms + 1) == []
        await rig.deliver(job_id)

        assert await rig.repository.extend_leases([job_id], rig.now_ms + QUEUE_LEASE_S * 2000) == []

    async def test_a_recovered_job_is_delivered_before_its_queued_followers(self, rig: JobRig) -> None:
        first = await rig.make()
        await rig.queue_all()
        rig.clock.advance(1)
        second = await rig.make()
        await rig.queue_all()
        rig.clock.advance(QUEUE_LEASE_S - 1)
        assert await recover_lost(rig) == [first]

        assert (await rig.begin(second)).what is Beginning.HELD_BACK
        assert await rig.queue_all() == [first, second]


class TestDecisions:
    async def test_pending_and_queued_jobs_can_be_cancelled(self, rig: JobRig) -> None:
        queued = await rig.make("a")
        await rig.queue_all()
        claimed = await rig.make("b")
        jobs = await rig.claim()
        ready, later = await rig.make("c"), await rig.make("c", scheduled_for_ms=rig.now_ms + 1000)

        await rig.repository.cancel([queued, claimed, ready, later], rig.now_ms)

        assert (await rig.repository.counts())[CANCELLED] == 4
        assert await rig.queue(jobs) == []
        assert (await rig.begin(queued)).what is Beginning.FINAL
        rig.clock.advance(QUEUE_LEASE_S)
        assert await rig.claim() == []

    async def test_a_group_goes_on_after_one_of_it_was_cancelled_in_flight(self, rig: JobRig) -> None:
        await rig.make()
        jobs = await rig.claim()
        second = await rig.make()

        await rig.repository.cancel([jobs[0].id], rig.now_ms)
        assert await rig.queue(jobs) == []

        assert await rig.claim_ids() == [second]

    async def test_a_job_that_is_over_cannot_be_cancelled_and_then_nothing_is(self, rig: JobRig) -> None:
        first = await rig.make("a")
        await rig.queue_all()
        await rig.deliver(first)
        second = await rig.make("b")

        with pytest.raises(WrongJobStatus, match=f"job {first} is COMPLETED: it cannot be cancelled"):
            await rig.repository.cancel([second, first], rig.now_ms)

        assert await rig.status(second) is PENDING

    async def test_a_job_that_is_cancelled_during_its_delivery_stays_cancelled(self, rig: JobRig) -> None:
        job_id = await rig.make()
        await rig.queue_all()
        begin = await rig.begin(job_id)
        await rig.repository.cancel([job_id], rig.now_ms)

        assert not await rig.finish(begin.job, Done(COMPLETED), AttemptOutcome.DELIVERED)
        assert await rig.status(job_id) is CANCELLED

    @pytest.mark.parametrize("decide", ["retry", "ignore"])
    async def test_only_errors_can_be_retried_or_ignored(self, rig: JobRig, decide: str) -> None:
        job_id = await rig.make()

        with pytest.raises(WrongJobStatus, match="is PENDING"):
            await getattr(rig.repository, decide)([job_id], rig.now_ms)

    @pytest.mark.parametrize("decide", ["cancel", "retry", "ignore"])
    async def test_deciding_about_an_unknown_job_is_refused(self, rig: JobRig, decide: str) -> None:
        with pytest.raises(JobNotFound):
            await getattr(rig.repository, decide)(["nobody"], rig.now_ms)

    async def test_the_jobs_of_a_subscription_are_cancelled_together(self, rig: JobRig) -> None:
        await rig.make_many([rig.new_job(f"g{n}", subscription_id="s") for n in range(5)])
        other = await rig.make(subscription_id="t")

        assert await rig.repository.cancel_of_subscription("s", rig.now_ms, 3) == 3
        assert await rig.repository.cancel_of_subscription("s", rig.now_ms, 3) == 2

        assert await rig.claim_ids() == [other]


class TestExpiry:
    async def test_a_job_past_its_time_is_not_published_and_holds_nobody_up(self, rig: JobRig) -> None:
        late = await rig.make(expires_at_ms=rig.now_ms + 1000)
        follower = await rig.make()
        rig.clock.advance(1)

        assert await rig.claim_ids() == [follower]
        assert await rig.status(late) is EXPIRED

    async def test_a_queued_job_past_its_time_is_not_delivered(self, rig: JobRig) -> None:
        job_id = await rig.make(expires_at_ms=rig.now_ms + 1000)
        await rig.queue_all()
        rig.clock.advance(1)

        begin = await rig.begin(job_id)

        assert (begin.what, begin.job and begin.job.status) == (Beginning.FINAL, EXPIRED)

    async def test_more_jobs_expire_than_one_transaction_takes(
        self, rig: JobRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.events.store.repository.chores.AT_ONCE", 2)
        await rig.make_many([rig.new_job(f"g{n}", expires_at_ms=rig.now_ms + n) for n in range(5)])
        rig.clock.advance(1)

        await rig.repository.do_chores(rig.now_ms)

        assert (await rig.repository.counts())[EXPIRED] == 5


class TestSubscriptionsAndPools:
    async def test_a_subscription_is_kept_as_it_was_made(self, rig: JobRig) -> None:
        subscription = rig.new_subscription(
            tenant="acme",
            filter=EventFilter((Condition("region", values=("eu",)),)),
            secrets=("new", "old"),
            pool="SLOW",
            mode=NEXT,
            retry=RetrySchedule((1, 2)),
            timeout_s=3.5,
            headers={"x": "y"},
            dead_letter_topic="dead",
        )
        await rig.repository.add_subscription(subscription)

        assert await rig.repository.get_subscription(subscription.id) == subscription
        assert await rig.repository.list_subscriptions() == [subscription]

    async def test_a_tenant_has_one_subscription_of_a_name(self, rig: JobRig) -> None:
        await rig.repository.add_subscription(rig.new_subscription("billing"))
        await rig.repository.add_subscription(rig.new_subscription("billing", tenant="acme"))
        other = rig.new_subscription("other")
        await rig.repository.add_subscription(other)

        with pytest.raises(SubscriptionNameTaken, match="'billing'"):
            await rig.repository.add_subscription(rig.new_subscription("billing"))
        with pytest.raises(SubscriptionNameTaken, match="'billing'"):
            await rig.repository.change_subscription(rig.new_subscription("billing", id=other.id))

    async def test_a_change_leaves_it_paused(self, rig: JobRig) -> None:
        subscription = rig.new_subscription()
        await rig.repository.add_subscription(subscription)
        await rig.repository.pause_subscription(subscription.id)

        await rig.repository.change_subscription(rig.new_subscription("renamed", id=subscription.id, timeout_s=1.0))

        changed = await rig.repository.get_subscription(subscription.id)
        assert (changed.name, changed.timeout_s, changed.paused) == ("renamed", 1.0, True)

    async def test_a_paused_subscription_gives_nothing_until_it_goes_on(self, rig: JobRig) -> None:
        paused, active = rig.new_subscription("paused"), rig.new_subscription("active")
        for subscription in (paused, active):
            await rig.repository.add_subscription(subscription)
        await rig.repository.pause_subscription(paused.id)
        waiting = [await rig.make(f"g{n}", subscription_id=paused.id) for n in range(3)]
        going = await rig.make(subscription_id=active.id)

        assert await rig.claim_ids(most=1) == [going]
        assert await rig.claim_ids() == []
        await rig.repository.resume_subscription(paused.id)
        assert await rig.claim_ids() == waiting

    async def test_what_does_not_exist_is_not_found(self, rig: JobRig) -> None:
        repository = rig.repository
        for call in (
            repository.get_subscription,
            repository.pause_subscription,
            repository.resume_subscription,
            repository.delete_subscription,
        ):
            with pytest.raises(UnknownSubscription):
                await call("nobody")
        with pytest.raises(UnknownSubscription):
            await repository.change_subscription(rig.new_subscription())
        for find in (repository.get_pool, repository.delete_pool):
            with pytest.raises(PoolNotFound):
                await find("nobody")

    async def test_a_deleted_subscription_is_gone_and_its_jobs_stay(self, rig: JobRig) -> None:
        subscription = rig.new_subscription(paused=True)
        await rig.repository.add_subscription(subscription)
        job_id = await rig.make(subscription_id=subscription.id)
        assert await rig.claim() == []

        await rig.repository.delete_subscription(subscription.id)

        assert await rig.repository.list_subscriptions() == []
        assert await rig.claim_ids() == [job_id]

    async def test_pools_are_kept_changed_and_deleted(self, rig: JobRig) -> None:
        for pool in (Pool("B"), Pool("A", 3, 60), Pool("B", 7)):
            await rig.repository.put_pool(pool)

        assert await rig.repository.list_pools() == [Pool("A", 3, 60), Pool("B", 7)]
        await rig.repository.delete_pool("A")
        assert await rig.repository.get_pool("B") == Pool("B", 7)
        assert await rig.repository.list_pools() == [Pool("B", 7)]


class TestListing:
    async def test_pages_show_each_job_once_the_newest_first(self, rig: JobRig) -> None:
        ids = [await rig.make(f"g{n}", payload=b"x") for n in range(7)]
        seen: list[str] = []
        cursor = None
        while True:
            page = await rig.repository.list_jobs(JobFilter(), cursor, 3)
            seen += [job.id for job in page.jobs]
            assert all(job.payload is None for job in page.jobs)
            cursor = page.cursor
            if cursor is None:
                break

        assert seen == ids[::-1]

    async def test_a_full_last_page_has_no_cursor(self, rig: JobRig) -> None:
        await rig.make_many([rig.new_job() for _ in range(3)])

        assert (await rig.repository.list_jobs(JobFilter(), None, 3)).cursor is None

    async def test_filters_narrow_the_list(self, rig: JobRig) -> None:
        event = rig.new_event()
        mine = rig.new_job("a", subscription_id="s", tenant="acme", type="t", event_id=event.id)
        other = rig.new_job("b")
        await rig.repository.publish([event], [mine, rig.new_job("b", event_id="nobody")], rig.now_ms)
        await rig.make_many([other])
        await rig.queue_all()
        await rig.deliver(mine.id)

        for which, expected in (
            (JobFilter(status=COMPLETED), [mine.id]),
            (JobFilter(status=QUEUED), [other.id]),
            (JobFilter(subscription_id="s"), [mine.id]),
            (JobFilter(group_key="s:a"), [mine.id]),
            (JobFilter(event_id=event.id), [mine.id]),
            (JobFilter(tenant="acme"), [mine.id]),
            (JobFilter(type="t"), [mine.id]),
            (JobFilter(tenant="acme", status=QUEUED), []),
        ):
            page = await rig.repository.list_jobs(which, None, 10)
            assert [job.id for job in page.jobs] == expected, which

    async def test_pending_means_every_kind_of_pending(self, rig: JobRig) -> None:
        await rig.make("claimed")
        await rig.claim()
        await rig.make("ready")
        await rig.make("later", scheduled_for_ms=rig.now_ms + 1)

        assert len((await rig.repository.list_jobs(JobFilter(status=PENDING), None, 10)).jobs) == 3
        assert (await rig.repository.counts())[PENDING] == 3

    async def test_a_made_up_cursor_is_refused(self, rig: JobRig) -> None:
        with pytest.raises(BadCursor, match="page two"):
            await rig.repository.list_jobs(JobFilter(), "page two", 3)


class TestSignal:
    async def test_making_a_job_calls_the_scheduler(self, rig: JobRig) -> None:
        waiting = asyncio.create_task(rig.called())
        await rig.make()
        await waiting

    async def test_a_job_for_later_calls_too_so_that_the_scheduler_knows_when(self, rig: JobRig) -> None:
        waiting = asyncio.create_task(rig.called())
        await rig.make(scheduled_for_ms=rig.now_ms + 1000)
        await waiting

    @pytest.mark.parametrize("step", ["retry", "ignore", "resume"])
    async def test_whatever_lets_jobs_go_calls(self, rig: JobRig, step: str) -> None:
        subscription = rig.new_subscription()
        await rig.repository.add_subscription(subscription)
        failed = await rig.make(subscription_id=subscription.id)
        await rig.queue_all()
        await rig.fail(failed)
        await rig.make("other", subscription_id=subscription.id)
        await rig.claim()
        await rig.called()

        waiting = asyncio.create_task(rig.called())
        match step:
            case "retry":
                await rig.repository.retry([failed], rig.now_ms)
            case "ignore":
                await rig.repository.ignore([failed], rig.now_ms)
            case "resume":
                await rig.repository.resume_subscription(subscription.id)
        await waiting


class TestLeadership:
    async def test_one_holds_the_lease_until_it_runs_out(self, rig: JobRig) -> None:
        repository = rig.repository
        first = await repository.acquire_lease(SCHEDULER, "a", rig.now_ms, 30_000)
        assert first is not None
        assert await repository.acquire_lease(SCHEDULER, "b", rig.now_ms, 30_000) is None
        rig.clock.advance(30)

        second = await repository.acquire_lease(SCHEDULER, "b", rig.now_ms, 30_000)

        assert second is not None
        assert second.token > first.token
        assert await repository.renew_lease(first, rig.now_ms, 30_000) is None
        assert not await repository.release_lease(first, rig.now_ms)

    async def test_a_renewed_lease_keeps_its_token(self, rig: JobRig) -> None:
        lease = await rig.repository.acquire_lease(SCHEDULER, "a", rig.now_ms, 30_000)
        assert lease is not None
        rig.clock.advance(20)

        renewed = await rig.repository.renew_lease(lease, rig.now_ms, 30_000)

        assert renewed is not None
        assert (renewed.token, renewed.expires_ms) == (lease.token, rig.now_ms + 30_000)

    async def test_a_lease_that_ran_out_cannot_be_renewed(self, rig: JobRig) -> None:
        lease = await rig.repository.acquire_lease(SCHEDULER, "a", rig.now_ms, 30_000)
        assert lease is not None
        rig.clock.advance(30)

        assert await rig.repository.renew_lease(lease, rig.now_ms, 30_000) is None

    async def test_a_released_lease_is_free_at_once(self, rig: JobRig) -> None:
        lease = await rig.repository.acquire_lease(SCHEDULER, "a", rig.now_ms, 30_000)
        assert lease is not None
        assert await rig.repository.release_lease(lease, rig.now_ms)

        following = await rig.repository.acquire_lease(SCHEDULER, "b", rig.now_ms, 30_000)

        assert following is not None
        assert following.token == lease.token + 1

    async def test_of_many_who_want_it_one_gets_it(self, rig: JobRig) -> None:
        leases = await asyncio.gather(
            *(rig.repository.acquire_lease(SCHEDULER, f"node {n}", rig.now_ms, 30_000) for n in range(8))
        )

        assert sum(lease is not None for lease in leases) == 1

    async def test_a_leader_that_was_followed_can_neither_claim_nor_mark_nor_recover(self, rig: JobRig) -> None:
        old = await rig.repository.acquire_lease(SCHEDULER, "a", rig.now_ms, 30_000)
        assert old is not None
        job_id = await rig.make()
        jobs = await rig.claim(token=old.token)
        rig.clock.advance(30)
        new = await rig.repository.acquire_lease(SCHEDULER, "b", rig.now_ms, 30_000)
        assert new is not None

        for call in (
            rig.claim(token=old.token),
            rig.queue(jobs, token=old.token),
            rig.give_back(jobs, token=old.token),
            rig.repository.recover_stale(rig.now_ms, 10, old.token),
        ):
            with pytest.raises(StaleLeader, match=f"token {old.token}"):
                await call

        assert [job.id for job in await rig.claim(owner="b", token=new.token)] == [job_id]


class TestArchive:
    async def finished(self, rig: JobRig) -> dict[str, str]:
        """One job of each kind of end, and one that blocks."""
        names = ("completed", "cancelled", "expired", "failed", "blocking")
        modes = {"failed": NEXT}
        ids = {name: await rig.make(name, mode=modes.get(name, BLOCK)) for name in names}
        await rig.queue_all()
        await rig.deliver(ids["completed"])
        await rig.repository.cancel([ids["cancelled"]], rig.now_ms)
        await rig.deliver(ids["expired"], Done(EXPIRED))
        await rig.fail(ids["failed"])
        await rig.fail(ids["blocking"])
        return ids

    async def test_finished_jobs_leave_for_the_archive_and_can_still_be_seen(self, rig: JobRig) -> None:
        ids = await self.finished(rig)
        waiting = await rig.make("blocking")
        before = await rig.repository.get_job(ids["completed"])
        rig.clock.advance(3600)

        assert await rig.repository.archive_finished(rig.now_ms, rig.now_ms, 100) == 4

        assert await rig.repository.get_job(ids["completed"]) == before
        assert len(await rig.repository.attempts_of(ids["completed"], BEFORE_ALL_ATTEMPTS, 10)) == 1
        left = (await rig.repository.list_jobs(JobFilter(), None, 10)).jobs
        assert [job.id for job in left] == [waiting, ids["blocking"]]
        archived = (await rig.repository.list_jobs(JobFilter(archived=True), None, 10)).jobs
        assert {job.id for job in archived} == set(ids.values()) - {ids["blocking"]}
        assert await rig.claim() == []

    async def test_jobs_finished_lately_stay(self, rig: JobRig) -> None:
        await self.finished(rig)

        assert await rig.repository.archive_finished(rig.now_ms, rig.now_ms, 100) == 0

    async def test_archiving_takes_no_more_than_it_is_told(self, rig: JobRig) -> None:
        await self.finished(rig)
        rig.clock.advance(1)

        counts = [await rig.repository.archive_finished(rig.now_ms, rig.now_ms, 3) for _ in range(3)]

        assert counts == [3, 1, 0]

    async def test_months_that_ended_before_are_dropped_with_their_attempts(self, rig: JobRig) -> None:
        ids = await self.finished(rig)
        rig.clock.advance(3600)
        await rig.repository.archive_finished(rig.now_ms, rig.now_ms, 100)
        following = Month.of(rig.now_ms).next

        await rig.repository.purge_archive(following.start_ms - 1)
        assert (await rig.repository.get_job(ids["completed"])).status is COMPLETED
        await rig.repository.purge_archive(following.start_ms)

        with pytest.raises(JobNotFound):
            await rig.repository.get_job(ids["completed"])
        assert await rig.repository.attempts_of(ids["completed"], BEFORE_ALL_ATTEMPTS, 10) == []
        assert await rig.status(ids["blocking"]) is ERROR

    async def test_jobs_go_on_being_archived_month_after_month(self, rig: JobRig) -> None:
        for _ in range(4):
            job_id = await rig.make()
            await rig.queue_all()
            await rig.deliver(job_id)
            rig.clock.advance(40 * 24 * 3600)
            assert await rig.repository.archive_finished(rig.now_ms, rig.now_ms, 100) == 1

        await rig.repository.purge_archive(rig.now_ms)

        assert (await rig.repository.list_jobs(JobFilter(archived=True), None, 10)).jobs == []

    async def test_an_archived_job_cannot_be_retried(self, rig: JobRig) -> None:
        ids = await self.finished(rig)
        rig.clock.advance(1)
        await rig.repository.archive_finished(rig.now_ms, rig.now_ms, 100)

        with pytest.raises(JobNotFound):
            await rig.repository.retry([ids["failed"]], rig.now_ms)


class TestChanges:
    async def keep(self, rig: JobRig, who: str, target: dict[str, str] | None = None) -> KeptChange:
        change = Change(who=who, role="admin", action="PUT /pools/{code}", target=target or {}, detail="{}")
        kept = KeptChange(id=rig.new_id(), at_ms=rig.now_ms, change=change)
        await rig.repository.keep_change(kept)
        return kept

    async def test_the_newest_comes_first_page_by_page(self, rig: JobRig) -> None:
        kept = [await self.keep(rig, who) for who in ("a", "b", "c")]

        first = await rig.repository.list_changes(None, 2)
        rest = await rig.repository.list_changes(first.cursor, 2)

        assert [*first.changes, *rest.changes] == kept[::-1]
        assert rest.cursor is None
        with pytest.raises(BadCursor):
            await rig.repository.list_changes("x", 2)

    async def test_what_a_caller_wrote_is_kept_as_it_is(self, rig: JobRig) -> None:
        kept = await self.keep(rig, "a", {"code": "\0'\N{GRINNING FACE}"})
        assert (await rig.repository.list_changes(None, 1)).changes == [kept]

    async def test_they_are_forgotten_with_the_events(self, rig: JobRig) -> None:
        await self.keep(rig, "old")
        rig.clock.advance(60)
        new = await self.keep(rig, "new")

        await rig.repository.forget_events(rig.now_ms, 10)

        assert (await rig.repository.list_changes(None, 10)).changes == [new]


class TestOpening:
    async def test_jobs_are_there_after_a_restart(self, rig: JobRig, connect: Connect) -> None:
        ids = [await rig.make() for _ in range(3)]
        await rig.queue(await rig.claim(per_lane=1))
        await rig.repository.close()
        rig.repository = connect()
        await rig.repository.open(rig.now_ms)

        assert await rig.status(ids[0]) is QUEUED
        assert await rig.claim_ids() == ids[1:]

    async def test_nodes_that_start_at_once_agree_on_the_tables(self, empty_database: SparkDatabase) -> None:
        repositories = [connecting(empty_database)() for _ in range(4)]
        rigs = [JobRig(repository) for repository in repositories]

        await asyncio.gather(*(rig.repository.open(rig.now_ms) for rig in rigs))

        for rig in rigs:
            assert sum((await rig.repository.counts()).values()) == 0
            await rig.repository.close()

    async def test_a_closed_repository_can_be_closed_again(self, connect: Connect) -> None:
        repository = connect()
        await repository.close()
        await repository.close()
