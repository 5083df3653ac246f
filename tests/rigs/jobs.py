"""What tests of jobs do over and over: a repository with a virtual clock, and a short word for each step."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.domain.event import StoredEvent
from penstock.domain.ids import TsidFactory
from penstock.domain.job import Attempt, ClaimedJob, DispatchJob, NewJob
from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pace.credit import CreditBook, CreditLimits
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription
from penstock.events.dispatch.lane_claims import LaneClaims
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.deliveries import (
    Begin,
    Beginning,
    DeliveryLease,
    Done,
    EndedDelivery,
    TryLater,
    Verdict,
)
from penstock.events.store.repository.lanes import LaneOwner, Lanes
from penstock.testing.clock import VirtualClock

IMMEDIATE = DispatchMode.IMMEDIATE
NEXT = DispatchMode.NEXT_ON_ERROR
BLOCK = DispatchMode.BLOCK_ON_ERROR
TARGET = "https://orders.example/hook"
LEASE_S = 30
QUEUE_LEASE_S = 900
SETTINGS = SchedulerSettings(claim_lease_s=LEASE_S, stale_after_s=QUEUE_LEASE_S)
WAIT_S = 60


async def begin_all(jobs: JobRepository, job_ids: Sequence[str], lease: DeliveryLease) -> list[Begin]:
    """Begin deliveries, and explain in a transaction why others could not begin."""
    begun = dict((await jobs.begin(job_ids, lease.now_ms)).begun)
    left = [job_id for job_id in job_ids if job_id not in begun]
    begun |= await jobs.explain(left, lease) if left else {}
    return [begun[job_id] for job_id in job_ids]


async def finish_all(jobs: JobRepository, ended: Sequence[EndedDelivery]) -> list[bool]:
    """End deliveries, all of them at once."""
    return await jobs.finish(ended)


async def any_awake(lanes: Lanes) -> bool:
    """Return whether a claim might find something."""
    return bool(await lanes.awake_ranges("", 0, 1, unlimited()))


def unlimited() -> CreditBook:
    """Return credit without end, for what is not about credit."""
    return CreditBook(fixed=CreditLimits(1_000_000, shared=False))


class JobRig:
    """A repository, a clock that moves only when told, and ids in order."""

    def __init__(self, repository: JobRepository) -> None:
        self.repository = repository
        self.clock = VirtualClock()
        self.ids = TsidFactory(1)

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def new_id(self) -> str:
        return self.ids.next_id(self.now_ms)

    def new_job(self, group: str | None = "g", **fields: Any) -> NewJob:
        values = {"id": self.new_id(), "target": TARGET, "created_at_ms": self.now_ms, "group": group, **fields}
        return NewJob(**values)

    def new_event(self, **fields: Any) -> StoredEvent:
        values = {
            "id": self.new_id(),
            "source": "shop",
            "type": "orders:created",
            "received_ms": self.now_ms,
            **fields,
        }
        return StoredEvent(**values)

    def new_subscription(self, name: str = "billing", **fields: Any) -> Subscription:
        return Subscription(**{"id": self.new_id(), "name": name, "pattern": "orders:**", "target": TARGET, **fields})

    async def make(self, group: str | None = "g", **fields: Any) -> str:
        """Keep one new job; its id."""
        (created,) = await self.repository.create_jobs([self.new_job(group, **fields)], self.now_ms)
        return created.id

    async def make_many(self, jobs: Sequence[NewJob]) -> list[str]:
        return [created.id for created in await self.repository.create_jobs(jobs, self.now_ms)]

    def claims(self, owner: str = "a", token: int | None = None, per_lane: int = 100) -> LaneClaims:
        """What an engine claims lanes with."""
        settings = msgspec.structs.replace(SETTINGS, jobs_per_lane=per_lane)
        return LaneClaims(self.repository.lanes, LaneOwner(owner, token), settings, self.clock)

    async def claim(
        self, most: int = 100, per_lane: int = 100, owner: str = "a", token: int | None = None
    ) -> list[ClaimedJob]:
        """Claim the lanes whose turn it is, as a poll does; their jobs, lane by lane."""
        await self.repository.do_chores(self.now_ms)
        claims = self.claims(owner, token, per_lane)
        while runs := await self.repository.lanes.read(self.now_ms, most, unlimited(), per_lane):
            if taken := await claims.take(runs):
                return [job for run in taken for job in run.jobs]
        return []

    async def claim_ids(self, most: int = 100, per_lane: int = 100) -> list[str]:
        return [job.id for job in await self.claim(most, per_lane)]

    async def queue(self, jobs: Sequence[ClaimedJob], owner: str = "a", token: int | None = None) -> list[str]:
        """These are in the queue, and their lanes are free again; the ids of those that are QUEUED by that."""
        before = [await self.status(job.id) for job in jobs]
        await self.claims(owner, token).published(jobs, {job.lane for job in jobs})
        after = [await self.status(job.id) for job in jobs]
        return [
            job.id
            for job, was, is_now in zip(jobs, before, after, strict=True)
            if (was, is_now) == (JobStatus.PENDING, JobStatus.QUEUED)
        ]

    async def give_back(self, jobs: Sequence[ClaimedJob], owner: str = "a", token: int | None = None) -> None:
        """These are not in the queue: their lanes are free again."""
        await self.claims(owner, token).published([], {job.lane for job in jobs})

    async def queue_all(self) -> list[str]:
        """Claim whatever may go, and mark it as published; the ids in order."""
        ids: list[str] = []
        while jobs := await self.claim():
            await self.queue(jobs)
            ids += [job.id for job in jobs]
        return ids

    async def begin(self, job_id: str) -> Begin:
        (begin,) = await self.begin_all([job_id])
        return begin

    async def begin_all(self, job_ids: Sequence[str], behind_ms: int = 0) -> list[Begin]:
        """Begin deliveries, all of them at once, by a clock that may be behind."""
        now_ms = self.now_ms - behind_ms
        lease = DeliveryLease(now_ms, now_ms + QUEUE_LEASE_S * 1000)
        return await begin_all(self.repository, job_ids, lease)

    def ended(self, job: DispatchJob | None, verdict: Verdict, outcome: AttemptOutcome) -> EndedDelivery:
        assert job is not None
        attempt = Attempt(number=job.delivery_count, outcome=outcome, at_ms=self.now_ms, duration_ms=12)
        return EndedDelivery(job.id, attempt, verdict, self.now_ms)

    async def finish(self, job: DispatchJob | None, verdict: Verdict, outcome: AttemptOutcome) -> bool:
        (kept,) = await finish_all(self.repository, [self.ended(job, verdict, outcome)])
        return kept

    async def deliver(self, job_id: str, verdict: Verdict | None = None) -> None:
        """Begin and end a delivery; by default it succeeds."""
        begin = await self.begin(job_id)
        assert begin.what is Beginning.BEGUN, begin
        outcome = AttemptOutcome.FAILED if verdict else AttemptOutcome.DELIVERED
        assert await self.finish(begin.job, verdict or Done(JobStatus.COMPLETED), outcome)

    async def fail(self, job_id: str) -> None:
        """Begin a delivery that ends in ERROR."""
        await self.deliver(job_id, Done(JobStatus.ERROR))

    async def fail_for_now(self, job_id: str, delay_s: float) -> None:
        """Begin a delivery that fails and is to be tried again later."""
        await self.deliver(job_id, TryLater(self.now_ms + round(delay_s * 1000)))

    async def status(self, job_id: str) -> JobStatus:
        return (await self.repository.get_job(job_id)).status

    async def called(self) -> None:
        """Return when the signal is called; fail when it is not."""
        async with asyncio.timeout(WAIT_S):
            await self.repository.signal.wait()
