"""Whether a group is blocked by a job in ERROR.

The claim itself leaves blocked jobs out, in its query (ruling 16): so they never fill a batch, and a poll costs the
same with one blocked group or a thousand. The rule is `core.plan`'s: an ERROR job blocks the BLOCK_ON_ERROR jobs behind
it in its group, and nothing else, until somebody retries or ignores it. This checker answers people who ask why a group
stands still.
"""

from typing import Protocol

from penstock.domain.job_state import JobStatus
from penstock.jobs.listing import JobFilter, JobPage

_MOST_COUNTED = 1000


class ListedJobs(Protocol):
    """Jobs that can be looked for."""

    async def list_jobs(self, which: JobFilter, cursor: str | None, most: int) -> JobPage:
        """A page of jobs, the newest first."""
        ...


class BlockOnErrorChecker:
    """Counts the ERROR jobs of a group."""

    def __init__(self, jobs: ListedJobs) -> None:
        self._jobs = jobs

    async def errors_of(self, group_key: str) -> list[str]:
        """The ids of the jobs that block a group, the oldest first, at most 1,000; none if it is not blocked."""
        which = JobFilter(status=JobStatus.ERROR, group_key=group_key)
        page = await self._jobs.list_jobs(which, None, _MOST_COUNTED)
        return [job.id for job in reversed(page.jobs)]
