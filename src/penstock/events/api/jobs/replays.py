"""`/api/v1/replays`: deliver the finished jobs that match a filter again, or count them.

This process copies the jobs and sends them through the queue. `penstock pipeline replay` does the same for millions of
jobs: both create their copies with `events.store.Replays`.
"""

from collections.abc import Callable, Sequence
from http import HTTPStatus

import msgspec

from penstock.client.types import MOST_AT_ONCE, EpochMs, GroupKey, Name
from penstock.domain.job import DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.replay import ReplayRequest, ReplaySelection, last_copies
from penstock.edge.clock import Clock
from penstock.events.store import JobFilter, JobRepository
from penstock.http.api import Call, NoBody, NoQuery, route
from penstock.http.problems import Refused

PATH = "/api/v1/replays"
MOST_JOBS = 10_000


class Selection(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Which jobs; only those that can be replayed match."""

    status: JobStatus | None = None
    subscription_id: Name | None = None
    group_key: GroupKey | None = None
    type: Name | None = None
    created_from_ms: EpochMs | None = None
    created_to_ms: EpochMs | None = None

    def for_replay(self) -> ReplaySelection:
        """Return the selection as it is stored with a replay."""
        return ReplaySelection(
            from_ms=self.created_from_ms,
            to_ms=self.created_to_ms,
            subscription_id=self.subscription_id,
            status=self.status,
            type=self.type,
            group_key=self.group_key,
        )


class ReplayEstimate(msgspec.Struct, frozen=True, rename="camel"):
    """What a replay would create: a copy of each job. A copy of a job in ERROR replaces it and counts as retried."""

    retried: int
    made: int
    groups: int
    truncated: bool
    """Whether more jobs match than one replay takes."""


class Replayed(msgspec.Struct, frozen=True, rename="camel"):
    """What a replay created; the ids of its jobs end with `~` and the replay's id."""

    replay_id: str
    retried: int
    made: int


class ReplayRoutes:
    """The routes of replays."""

    def __init__(self, repository: JobRepository, new_id: Callable[[], str], clock: Clock) -> None:
        self._repository = repository
        self._new_id = new_id
        self._clock = clock

    @route("GET", f"{PATH}/count", summary="Count the jobs that a replay would deliver. Nothing is changed.")
    async def _count(self, call: Call[Selection, NoBody]) -> ReplayEstimate:
        return estimate(await self._jobs(call.query))

    @route(
        "POST",
        PATH,
        summary=f"Deliver the matching jobs again, up to {MOST_JOBS}, in order per key.",
        refusals=(HTTPStatus.CONFLICT,),
    )
    async def _replay(self, call: Call[NoQuery, Selection]) -> Replayed:
        jobs = await self._jobs(call.body)
        if estimate(jobs).truncated:
            detail = f"more than {MOST_JOBS} jobs match: narrow the filter, or use `penstock pipeline replay`"
            raise Refused(HTTPStatus.CONFLICT, detail)
        replay_id, request = self._new_id(), ReplayRequest(selection=call.body.for_replay())
        copied = await self._repository.replays(self._clock).copy_all(replay_id, request, [job.id for job in jobs])
        call.noted.update(count=str(copied.copies), replay=replay_id)
        return Replayed(replay_id, copied.in_error, copied.copies - copied.in_error)

    async def _jobs(self, selection: Selection) -> Sequence[DispatchJob]:
        """Return the matching jobs in order, up to one more than a replay takes.

        Jobs of deleted subscriptions cannot be delivered and are left out.
        """
        known = {None, *(each.id for each in await self._repository.list_subscriptions())}
        found: list[DispatchJob] = []
        for status in selection.for_replay().statuses:
            which = JobFilter(**{**msgspec.structs.asdict(selection), "status": status})
            cursor: str | None = None
            while len(found) <= MOST_JOBS:
                page = await self._repository.list_jobs(which, cursor, MOST_AT_ONCE)
                found = last_copies([*found, *(job for job in page.jobs if job.subscription_id in known)])
                cursor = page.cursor
                if cursor is None:
                    break
        return found[: MOST_JOBS + 1]


def estimate(jobs: Sequence[DispatchJob]) -> ReplayEstimate:
    """Return what a replay of these jobs would create."""
    errors = sum(job.status is JobStatus.ERROR for job in jobs)
    groups = len({job.group_key for job in jobs})
    return ReplayEstimate(errors, len(jobs) - errors, groups, len(jobs) > MOST_JOBS)
