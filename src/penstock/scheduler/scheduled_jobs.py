"""What the scheduler asks of the job repository: the part of its port that moves jobs from PENDING to the queue."""

from collections.abc import Sequence
from typing import Protocol

from penstock.domain.job import ClaimedJob
from penstock.jobs.signal import JobSignal
from penstock.scheduler.retention import KeptJobs


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
