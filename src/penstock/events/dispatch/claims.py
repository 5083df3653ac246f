"""The claims of one term of leadership: jobs taken, queued and given back in one owner's name, under one token.

What the scheduler asks of the job repository: the part of its port that moves jobs from PENDING to the queue.
"""

from collections.abc import Sequence
from typing import Protocol

from penstock.domain.job import ClaimedJob
from penstock.edge.clock import Clock
from penstock.events.dispatch.retention import KeptJobs
from penstock.events.dispatch.settings import MOST_PER_GROUP, SchedulerSettings
from penstock.events.store.signal import JobSignal


class ScheduledJobs(KeptJobs, Protocol):
    """Jobs as the scheduler sees them; every `JobRepository` is one, and says more about each call."""

    @property
    def signal(self) -> JobSignal:
        """Called when there may be jobs to claim."""
        ...

    async def claim_pending(
        self, now_ms: int, owner: str, lease_ms: int, most: int, per_group: int, token: int | None = None
    ) -> list[ClaimedJob]:
        """Take PENDING jobs to publish."""
        ...

    async def mark_queued(
        self, jobs: Sequence[ClaimedJob], owner: str, now_ms: int, lease_until_ms: int, token: int | None = None
    ) -> list[str]:
        """Claimed jobs are in the queue."""
        ...

    async def release(self, jobs: Sequence[ClaimedJob], owner: str, now_ms: int, token: int | None = None) -> list[str]:
        """Claimed jobs are not in the queue, and may be claimed again."""
        ...

    async def do_chores(self, now_ms: int) -> None:
        """See to what has come due or run out."""

    async def recover_stale(self, now_ms: int, most: int, token: int | None = None) -> list[str]:
        """QUEUED and PROCESSING jobs whose lease is over go back to PENDING."""
        ...

    async def next_due_ms(self) -> int | None:
        """The next moment at which a claim finds something that it does not find now."""
        ...


class Claims:
    """The repository as the leader of one term uses it; StaleLeader once another has followed."""

    def __init__(
        self, jobs: ScheduledJobs, clock: Clock, settings: SchedulerSettings, *, owner: str, token: int | None
    ) -> None:
        self._jobs = jobs
        self._clock = clock
        self._owner = owner
        self._token = token
        self._claim_ms = round(settings.claim_lease_s * 1000)
        self._stale_after_ms = round(settings.stale_after_s * 1000)

    async def take(self, most: int) -> list[ClaimedJob]:
        """Claim what may be published now."""
        now_ms = self._clock.now_ms()
        return await self._jobs.claim_pending(now_ms, self._owner, self._claim_ms, most, MOST_PER_GROUP, self._token)

    async def queued(self, jobs: Sequence[ClaimedJob]) -> None:
        """These are in the queue."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._stale_after_ms
        await self._jobs.mark_queued(jobs, self._owner, now_ms, until_ms, self._token)

    async def give_back(self, jobs: Sequence[ClaimedJob]) -> None:
        """These are not in the queue, and stay PENDING."""
        await self._jobs.release(jobs, self._owner, self._clock.now_ms(), self._token)

    async def do_chores(self) -> None:
        """See to what has come due or run out, as `take` does by itself."""
        await self._jobs.do_chores(self._clock.now_ms())

    async def recover(self, most: int) -> list[str]:
        """Jobs that nobody has heard of for too long are PENDING again; their ids."""
        return await self._jobs.recover_stale(self._clock.now_ms(), most, self._token)

    async def until_next_s(self) -> float | None:
        """How long until a claim finds something by itself; None if nothing waits for its time."""
        due_ms = await self._jobs.next_due_ms()
        return None if due_ms is None else max(0.0, (due_ms - self._clock.now_ms()) / 1000)

    def waited_s(self, jobs: Sequence[ClaimedJob]) -> float:
        """For how long the one of these jobs that has waited longest has been due."""
        now_ms = self._clock.now_ms()
        return max((now_ms - job.due_at_ms for job in jobs), default=0) / 1000

    async def called(self) -> None:
        """Return when there may be something to claim."""
        await self._jobs.signal.wait()
