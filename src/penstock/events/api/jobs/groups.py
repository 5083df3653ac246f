"""`/api/v1/groups`: groups that are held up, and the lanes of a key."""

from collections.abc import Iterable

from penstock.client.types import (
    GroupKey,
    HeldGroupList,
    HeldGroupView,
    HeldOrder,
    HeldQuery,
    LaneList,
    LaneQuery,
    LaneView,
)
from penstock.domain.job import DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.order import group_key
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription
from penstock.edge.clock import Clock
from penstock.events.api.jobs.types import job_view
from penstock.events.fields import moment_of
from penstock.events.store import HeldGroup, JobRepository, LaneState
from penstock.http.api import Call, NoBody, check_no_cursor, first_of, key_before, page_of, route

PATH = "/api/v1/groups"
SHOWN_JOBS = 50
# Subscriptions whose lanes are searched for a key in one request.
MOST_LANES = 200


class GroupRoutes:
    """The routes of groups."""

    def __init__(self, repository: JobRepository, clock: Clock) -> None:
        self._repository = repository
        self._clock = clock

    @route(
        "GET", f"{PATH}/held", summary="List the groups that wait for a failed job, by key or the most urgent first."
    )
    async def _held(self, call: Call[HeldQuery, NoBody]) -> HeldGroupList:
        names = {each.id: each.name for each in await self._repository.list_subscriptions()}
        held, cursor = await self._held_page(call.query)
        shown = [
            HeldGroupView(
                group.group_key,
                group.subscription_id,
                names.get(group.subscription_id or ""),
                group.errors,
                group.retrying,
                group.waiting,
                moment_of(group.since_ms),
            )
            for group in held
        ]
        return HeldGroupList(shown, cursor)

    async def _held_page(self, asked: HeldQuery) -> tuple[list[HeldGroup], str | None]:
        if asked.order is HeldOrder.URGENT:
            check_no_cursor(asked.cursor, "order=urgent")
            return await self._repository.most_urgent_groups(asked.limit, asked.subscription_id), None
        (after,) = ("",) if asked.cursor is None else key_before(asked.cursor, tuple[GroupKey])
        found = await self._repository.held_groups(after, asked.limit + 1, asked.subscription_id)
        return first_of(found, lambda group: (group.group_key,), asked.limit)

    @route(
        "GET",
        f"{PATH}/lanes",
        summary=f"List the lanes of a key: the first {SHOWN_JOBS} jobs of each, and what they wait for.",
    )
    async def _lanes(self, call: Call[LaneQuery, NoBody]) -> LaneList:
        key = call.query.key
        subscriptions = await self._repository.list_subscriptions()
        page, cursor = page_of(subscriptions, lambda each: (each.id,), tuple[str], MOST_LANES, call.query.cursor)
        groups: list[tuple[str, Subscription | None]] = [(group_key(each.id, key), each) for each in page]
        if call.query.cursor is None:
            groups.insert(0, (key, next((each for each in subscriptions if key.startswith(f"{each.id}:")), None)))
        now_ms = self._clock.now_ms()
        found: list[LaneView] = []
        for group, subscription in groups:
            lane = await self._repository.lane_of(group, SHOWN_JOBS)
            if any(lane.counts.values()):
                found.append(lane_view(group, subscription, lane, now_ms))
        return LaneList(found, cursor)


def lane_view(group: str, subscription: Subscription | None, lane: LaneState, now_ms: int) -> LaneView:
    """Return the API's view of a lane."""
    paused = subscription is not None and subscription.paused
    blocker = _blocker(lane.jobs, now_ms)
    blocked_by = None if blocker is None else blocker.id
    return LaneView(
        group,
        None if subscription is None else subscription.id,
        None if subscription is None else subscription.name,
        paused,
        blocked_by,
        _reason(lane.jobs, blocker, paused=paused),
        lane.counts,
        [job_view(job) for job in lane.jobs],
    )


def _blocker(jobs: Iterable[DispatchJob], now_ms: int) -> DispatchJob | None:
    """Return the first job that a later BLOCK_ON_ERROR job must not pass (ORDER-2)."""
    for job in jobs:
        waits = job.status is JobStatus.PENDING and job.delivery_count > 0 and job.due_at_ms > now_ms
        if job.mode is DispatchMode.BLOCK_ON_ERROR and (job.status is JobStatus.ERROR or waits):
            return job
    return None


def _reason(jobs: list[DispatchJob], blocker: DispatchJob | None, *, paused: bool) -> str:
    if paused:
        return "its subscription is paused"
    if blocker is not None and blocker.status is JobStatus.ERROR:
        return f"job {blocker.id} is in ERROR: {blocker.last_error or 'no reason was recorded'}"
    if blocker is not None:
        return f"job {blocker.id} waits for its next attempt: {blocker.last_error or 'no reason was recorded'}"
    if not jobs:
        return "all jobs are finished"
    return f"nothing holds it up; its first job is {jobs[0].status}"
