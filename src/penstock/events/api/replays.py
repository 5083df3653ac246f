"""`/api/v1/replays`: deliver again what a filter finds, after a look at how much that is.

Small replays, made by this process: each job found is made anew and goes the usual way, in order per key. Days and
millions are `penstock pipeline replay`'s.
"""

from collections.abc import Callable, Sequence
from http import HTTPStatus

import msgspec

from penstock.domain.job import DispatchJob, NewJob
from penstock.domain.job_state import FINAL, JobStatus
from penstock.edge.clock import Clock
from penstock.events.api.fields import MOST_AT_ONCE, EpochMs, GroupKey, Name
from penstock.events.store.listing import JobFilter
from penstock.events.store.repository import JobRepository
from penstock.http.api.problems import Refused
from penstock.http.api.query import NoQuery
from penstock.http.api.routes import AnyRoute, Call, NoBody, Route

PATH = "/api/v1/replays"
MOST_JOBS = 10_000


class Selection(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Which jobs; only those that are over are found."""

    status: JobStatus | None = None
    subscription_id: Name | None = None
    group_key: GroupKey | None = None
    type: Name | None = None
    created_from_ms: EpochMs | None = None
    created_to_ms: EpochMs | None = None


class Found(msgspec.Struct, frozen=True, rename="camel"):
    """What a replay would do: begin anew with jobs in ERROR, and make the others once more."""

    retried: int
    made: int
    groups: int
    truncated: bool
    """Whether there are more than one replay takes."""


class Replayed(msgspec.Struct, frozen=True, rename="camel"):
    """What a replay did; the jobs it made have idempotency keys that begin with `replay:` and its id."""

    replay_id: str
    retried: int
    made: int


class ReplayRoutes:
    """The routes of replays."""

    def __init__(self, repository: JobRepository, new_id: Callable[[], str], clock: Clock) -> None:
        self._repository = repository
        self._new_id = new_id
        self._clock = clock

    def routes(self) -> tuple[AnyRoute, ...]:
        """What is served."""
        return (
            Route(
                method="GET",
                path=f"{PATH}/count",
                summary="How many jobs a replay would make; nothing is done.",
                answer=Found,
                query=Selection,
                handler=self._count,
            ),
            Route(
                method="POST",
                path=PATH,
                summary=f"Make the jobs found anew, up to {MOST_JOBS}, in order per key.",
                answer=Replayed,
                body=Selection,
                handler=self._replay,
                refusals=(HTTPStatus.CONFLICT,),
            ),
        )

    async def _count(self, call: Call[Selection, NoBody]) -> Found:
        return found_in(await self._jobs(call.query))

    async def _replay(self, call: Call[NoQuery, Selection]) -> Replayed:
        jobs = await self._jobs(call.body)
        if found_in(jobs).truncated:
            detail = f"the filter finds more than {MOST_JOBS} jobs: narrow it, or use `penstock pipeline replay`"
            raise Refused(HTTPStatus.CONFLICT, detail)
        replay_id, now_ms = self._new_id(), self._clock.now_ms()
        ordered = sorted(jobs, key=lambda job: (job.sequence, job.created_at_ms, job.id))
        # A copy of a job in ERROR would wait behind it.
        errors = [job.id for job in ordered if job.status is JobStatus.ERROR]
        made = [await self._copy(job, replay_id, now_ms) for job in ordered if job.status is not JobStatus.ERROR]
        for first in range(0, len(errors), MOST_AT_ONCE):
            await self._repository.retry(errors[first : first + MOST_AT_ONCE], now_ms)
        for first in range(0, len(made), MOST_AT_ONCE):
            await self._repository.create_jobs(made[first : first + MOST_AT_ONCE], now_ms)
        return Replayed(replay_id, len(errors), len(made))

    async def _jobs(self, selection: Selection) -> Sequence[DispatchJob]:
        """The jobs of a selection, one more than a replay takes at most, without those that cannot be delivered."""
        known = {each.id for each in await self._repository.list_subscriptions()}
        found: list[DispatchJob] = []
        for status in FINAL if selection.status is None else FINAL & {selection.status}:
            which = JobFilter(**{**msgspec.structs.asdict(selection), "status": status})
            cursor: str | None = None
            while len(found) <= MOST_JOBS:
                page = await self._repository.list_jobs(which, cursor, MOST_AT_ONCE)
                found += (job for job in page.jobs if job.subscription_id is None or job.subscription_id in known)
                cursor = page.cursor
                if cursor is None:
                    break
        return found[: MOST_JOBS + 1]

    async def _copy(self, job: DispatchJob, replay_id: str, now_ms: int) -> NewJob:
        # A page of jobs has no payloads; that of an event is found by the event.
        whole = job if job.event_id is not None else await self._repository.get_job(job.id)
        return NewJob(
            id=self._new_id(),
            target=job.target,
            created_at_ms=now_ms,
            type=job.type,
            event_id=job.event_id,
            subscription_id=job.subscription_id,
            tenant=job.tenant,
            group=job.group,
            sequence=job.sequence,
            mode=job.mode,
            pool=job.pool,
            payload=whole.payload,
            content_type=job.content_type,
            headers=job.headers,
            idempotency_key=f"replay:{replay_id}:{job.id}",
        )


def found_in(jobs: Sequence[DispatchJob]) -> Found:
    """What a replay of these jobs would do."""
    errors = sum(job.status is JobStatus.ERROR for job in jobs)
    groups = len({job.group_key for job in jobs})
    return Found(errors, len(jobs) - errors, groups, len(jobs) > MOST_JOBS)
