"""`/api/v1/replays`: deliver the finished jobs that match a filter again, or count them; what replays there are.

This process copies the jobs and sends them through the queue: a few while the caller waits, more beside the requests.
`penstock pipeline replay` does the same on Spark: both create their copies with `events.store.Replays`.
"""

from collections.abc import Callable, Sequence
from http import HTTPStatus

import msgspec

from penstock.client.types import EpochMs, GroupKey, Name
from penstock.domain.job import DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.replay import Replay, ReplayProgress, ReplayRequest, ReplaySelection, last_copies
from penstock.edge.clock import Clock
from penstock.events.api.jobs.replay_worker import ReplayWorker, is_done_here, matching_jobs
from penstock.events.errors import ReplayNotFound
from penstock.events.fields import checked_id
from penstock.events.store import JobRepository
from penstock.http.api import Call, NoBody, NoQuery, route
from penstock.http.problems import Refused

PATH = "/api/v1/replays"
FEW_JOBS = 10_000
"""Up to this many are copied while the caller waits."""

_LISTED = 20


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
    """Whether there are more jobs than were counted."""


class Replayed(msgspec.Struct, frozen=True, rename="camel"):
    """What a replay created; the ids of its jobs end with `~` and the replay's id."""

    replay_id: str
    retried: int
    made: int
    running: bool = False
    """Whether it has just begun, as it has many jobs; it can be asked how far it is."""


class ReplayView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A replay and how far it is, of the page or of `penstock pipeline replay`."""

    id: str
    direct: bool
    """Whether Spark delivers the jobs, instead of copying them to the queue."""
    total: int | None
    """Its jobs; null while they are counted."""
    done: int
    failed: int
    held_back: int
    requested_at_ms: int
    finished_at_ms: int | None
    stopped: bool


class ReplayList(msgspec.Struct, frozen=True):
    """The newest replays, the last one first."""

    replays: list[ReplayView]


class ReplayRoutes:
    """The routes of replays."""

    def __init__(
        self, repository: JobRepository, new_id: Callable[[], str], clock: Clock, worker: ReplayWorker
    ) -> None:
        self._repository = repository
        self._replays = repository.replays(clock)
        self._new_id = new_id
        self._clock = clock
        self._worker = worker

    @route("GET", f"{PATH}/count", summary="Count the jobs that a replay would deliver. Nothing is changed.")
    async def _count(self, call: Call[Selection, NoBody]) -> ReplayEstimate:
        return estimate(await self._jobs(call.query))

    @route("GET", PATH, summary="List the newest replays and how far they are.")
    async def _list(self, _: Call[NoQuery, NoBody]) -> ReplayList:
        return ReplayList([await self._view(replay) for replay in await self._replays.newest(_LISTED)])

    @route("GET", f"{PATH}/{{id}}", summary="Return a replay and how far it is.")
    async def _get(self, call: Call[NoQuery, NoBody]) -> ReplayView:
        return await self._view(await self._replays.get(_id(call)))

    @route("POST", PATH, summary="Deliver the matching jobs again, in order per key.")
    async def _replay(self, call: Call[NoQuery, Selection]) -> Replayed:
        jobs = await self._jobs(call.body)
        replay_id, request = self._new_id(), ReplayRequest(selection=call.body.for_replay())
        if estimate(jobs).truncated:
            self._worker.add(await self._replays.add(replay_id, request, 0, self._clock.now_ms()))
            call.noted.update(count=f"more than {FEW_JOBS}", replay=replay_id)
            return Replayed(replay_id, 0, 0, running=True)
        copied = await self._replays.copy_all(replay_id, request, [job.id for job in jobs])
        call.noted.update(count=str(copied.copies), replay=replay_id)
        return Replayed(replay_id, copied.in_error, copied.copies - copied.in_error)

    @route("POST", f"{PATH}/{{id}}/stop", summary="Stop a replay after the copies or deliveries under way.")
    async def _stop(self, call: Call[NoQuery, NoBody]) -> ReplayView:
        replay = await self._replays.get(_id(call))
        await self._replays.stop(replay.id)
        return await self._view(await self._replays.get(replay.id))

    @route(
        "POST",
        f"{PATH}/{{id}}/resume",
        summary="Continue a replay that was stopped, or whose process ended.",
        refusals=(HTTPStatus.CONFLICT,),
    )
    async def _resume(self, call: Call[NoQuery, NoBody]) -> ReplayView:
        replay = await self._replays.get(_id(call))
        request = replay.request
        if replay.finished_at_ms is not None:
            raise Refused(HTTPStatus.CONFLICT, "the replay is finished")
        if request.direct or request.per_s is not None or not is_done_here(request.selection):
            detail = f"Spark began it: continue it with `penstock pipeline replay --resume {replay.id}`"
            raise Refused(HTTPStatus.CONFLICT, detail)
        replay = await self._replays.go_on(replay.id)
        self._worker.add(replay)
        return await self._view(replay)

    async def _view(self, replay: Replay) -> ReplayView:
        return view_of(replay, await self._replays.progress(replay.id))

    async def _jobs(self, selection: Selection) -> Sequence[DispatchJob]:
        """Return the matching jobs in order, up to one more than are copied while the caller waits."""
        found: list[DispatchJob] = []
        async for page in matching_jobs(self._repository, selection.for_replay()):
            found = last_copies([*found, *page])
            if len(found) > FEW_JOBS:
                break
        return found[: FEW_JOBS + 1]


def estimate(jobs: Sequence[DispatchJob]) -> ReplayEstimate:
    """Return what a replay of these jobs would create."""
    errors = sum(job.status is JobStatus.ERROR for job in jobs)
    groups = len({job.group_key for job in jobs})
    return ReplayEstimate(errors, len(jobs) - errors, groups, len(jobs) > FEW_JOBS)


def view_of(replay: Replay, progress: ReplayProgress) -> ReplayView:
    """Return a replay as the API shows it."""
    is_counted = replay.total > 0 or replay.finished_at_ms is not None
    return ReplayView(
        id=replay.id,
        direct=replay.request.direct,
        total=replay.total if is_counted else None,
        done=progress.done,
        failed=progress.failed,
        held_back=progress.held_back,
        requested_at_ms=replay.requested_at_ms,
        finished_at_ms=replay.finished_at_ms,
        stopped=replay.stop_asked,
    )


def _id(call: Call[NoQuery, NoBody]) -> str:
    return checked_id(call.path["id"], ReplayNotFound)
