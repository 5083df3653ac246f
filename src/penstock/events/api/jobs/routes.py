"""`/api/v1/jobs`: create and list jobs, and cancel, retry or ignore them."""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from penstock.client.types import (
    MOST_AT_ONCE,
    AttemptList,
    Count,
    Decided,
    EpochMs,
    GroupToRetry,
    JobCounts,
    JobIds,
    JobList,
    JobQuery,
    JobReceipt,
    JobReceipts,
    JobView,
    NewJobBody,
    NewJobs,
    OldestAges,
    PageQuery,
)
from penstock.delivery import SecretBox
from penstock.domain.job import BEFORE_ALL_ATTEMPTS, CreatedJob, NewJob
from penstock.edge.clock import Clock
from penstock.events.api.jobs.types import attempt_view, job_view, new_job
from penstock.events.errors import UnknownSubscription
from penstock.events.fields import MAX_BATCH_BYTES, MAX_ITEM_BYTES, checked_id, checked_job_id
from penstock.events.payload_search import payload_field
from penstock.events.store import JobFilter, JobRepository
from penstock.http.api import Call, NoBody, NoQuery, first_of, key_before, route
from penstock.http.auth import EVERYONE, MAY_PUBLISH, Role
from penstock.http.problems import Refused

PATH = "/api/v1/jobs"


class JobRoutes:
    """The routes that create and show jobs."""

    def __init__(
        self, repository: JobRepository, secret_box: SecretBox, new_id: Callable[[], str], clock: Clock
    ) -> None:
        self._repository = repository
        self._secret_box = secret_box
        self._new_id = new_id
        self._clock = clock

    @route(
        "POST",
        PATH,
        summary="Create a job. For a known idempotency key, return the job that has it.",
        max_body_bytes=MAX_ITEM_BYTES,
        roles=MAY_PUBLISH,
        refusals=(HTTPStatus.NOT_FOUND,),
    )
    async def _create(self, call: Call[NoQuery, NewJobBody]) -> JobReceipt:
        (created,) = await self._new_jobs([call.body], call.caller.role)
        return JobReceipt(created.id, created.is_new)

    @route(
        "POST",
        f"{PATH}/batch",
        summary=f"Create up to {MOST_AT_ONCE} jobs, all or none.",
        max_body_bytes=MAX_BATCH_BYTES,
        roles=MAY_PUBLISH,
        refusals=(HTTPStatus.NOT_FOUND,),
    )
    async def _create_many(self, call: Call[NoQuery, NewJobs]) -> JobReceipts:
        jobs = await self._new_jobs(call.body.jobs, call.caller.role)
        return JobReceipts([JobReceipt(created.id, created.is_new) for created in jobs])

    async def _new_jobs(self, bodies: Sequence[NewJobBody], role: Role) -> list[CreatedJob]:
        if role is not Role.ADMIN and any(body.target is not None for body in bodies):
            detail = "a target of its own requires the role admin; give a subscriptionId, whose target the job gets"
            raise Refused(HTTPStatus.FORBIDDEN, detail)
        named = {body.subscription_id for body in bodies if body.subscription_id is not None}
        subscriptions = {
            name: await self._repository.get_subscription(checked_id(name, UnknownSubscription))
            for name in sorted(named)
        }
        now_ms = self._clock.now_ms()
        jobs = [
            self._stored(new_job(body, subscriptions.get(body.subscription_id or ""), self._new_id(), now_ms))
            for body in bodies
        ]
        return await self._repository.create_jobs(jobs, now_ms)

    def _stored(self, job: NewJob) -> NewJob:
        return msgspec.structs.replace(job, headers=self._secret_box.sealed_headers(job.headers, job.id))

    @route("GET", PATH, summary="List jobs, the newest first.")
    async def _list(self, call: Call[JobQuery, NoBody]) -> JobList:
        asked = call.query
        which = JobFilter(
            status=asked.status,
            subscription_id=asked.subscription_id,
            group_key=asked.group_key,
            key=asked.key,
            event_id=asked.event_id,
            tenant=asked.tenant,
            type=asked.type,
            created_from_ms=asked.created_from_ms,
            created_to_ms=asked.created_to_ms,
            archived=asked.archived,
        )
        if asked.payload is None:
            page = await self._repository.list_jobs(which, asked.cursor, asked.limit)
        else:
            field = payload_field(asked.payload)
            page = await self._repository.search_jobs(which, field, asked.cursor, asked.limit)
        return JobList([job_view(job) for job in page.jobs], page.cursor)

    @route("GET", f"{PATH}/counts", summary="Count the jobs by status.")
    async def _counts(self, _: Call[NoQuery, NoBody]) -> JobCounts:
        return JobCounts(await self._repository.counts())

    @route("GET", f"{PATH}/oldest-waiting", summary="Get the age of the oldest job that waits for delivery.")
    async def _oldest_waiting(self, _: Call[NoQuery, NoBody]) -> OldestAges:
        now_ms = self._clock.now_ms()
        oldest = await self._repository.oldest_waiting(now_ms)
        return OldestAges(age_s=_age_s(oldest.since_ms, now_ms), held_age_s=_age_s(oldest.held_since_ms, now_ms))

    @route("GET", f"{PATH}/{{id}}", summary="Get a job with its payload, archived or not.", roles=EVERYONE)
    async def _get(self, call: Call[NoQuery, NoBody]) -> JobView:
        return job_view(await self._repository.get_job(checked_job_id(call.path["id"])))

    @route(
        "GET",
        f"{PATH}/{{id}}/attempts",
        summary="List the delivery attempts of a job, the first one first.",
        roles=EVERYONE,
    )
    async def _attempts(self, call: Call[PageQuery, NoBody]) -> AttemptList:
        job_id, asked = checked_job_id(call.path["id"]), call.query
        after = BEFORE_ALL_ATTEMPTS if asked.cursor is None else key_before(asked.cursor, tuple[Count, EpochMs])
        found = await self._repository.attempts_of(job_id, after, asked.limit + 1)
        if not found:
            await self._repository.get_job(job_id)
        page, cursor = first_of(found, lambda attempt: (attempt.number, attempt.at_ms), asked.limit)
        return AttemptList([attempt_view(attempt) for attempt in page], cursor)


def _age_s(since_ms: int | None, now_ms: int) -> float | None:
    return None if since_ms is None else max(0, now_ms - since_ms) / 1000


class JobDecisionRoutes:
    """The routes that cancel, retry and ignore jobs."""

    def __init__(self, repository: JobRepository, clock: Clock) -> None:
        self._repository = repository
        self._clock = clock

    @route(
        "POST",
        f"{PATH}/{{id}}/cancel",
        summary="Cancel a job whose delivery has not begun.",
        refusals=(HTTPStatus.CONFLICT,),
    )
    async def _cancel(self, call: Call[NoQuery, NoBody]) -> Decided:
        return await self._decide(call, self._repository.cancel, [call.path["id"]])

    @route(
        "POST",
        f"{PATH}/cancel",
        summary="Cancel jobs whose delivery has not begun.",
        refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )
    async def _cancel_several(self, call: Call[NoQuery, JobIds]) -> Decided:
        return await self._decide(call, self._repository.cancel, call.body.ids)

    @route("POST", f"{PATH}/{{id}}/retry", summary="Retry a job in ERROR.", refusals=(HTTPStatus.CONFLICT,))
    async def _retry(self, call: Call[NoQuery, NoBody]) -> Decided:
        return await self._decide(call, self._repository.retry, [call.path["id"]])

    @route(
        "POST",
        f"{PATH}/retry",
        summary="Retry jobs in ERROR.",
        refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )
    async def _retry_several(self, call: Call[NoQuery, JobIds]) -> Decided:
        return await self._decide(call, self._repository.retry, call.body.ids)

    @route(
        "POST",
        f"{PATH}/{{id}}/ignore",
        summary="Ignore a job in ERROR, so that the jobs it blocks move on.",
        refusals=(HTTPStatus.CONFLICT,),
    )
    async def _ignore(self, call: Call[NoQuery, NoBody]) -> Decided:
        return await self._decide(call, self._repository.ignore, [call.path["id"]])

    @route(
        "POST",
        f"{PATH}/ignore",
        summary="Ignore jobs in ERROR, so that the jobs they block move on.",
        refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )
    async def _ignore_several(self, call: Call[NoQuery, JobIds]) -> Decided:
        return await self._decide(call, self._repository.ignore, call.body.ids)

    @route(
        "POST",
        f"{PATH}/retry-group",
        summary=f"Retry the first {MOST_AT_ONCE} jobs in ERROR of a group, in order.",
    )
    async def _retry_group(self, call: Call[NoQuery, GroupToRetry]) -> Decided:
        ids = await self._repository.retry_group(call.body.group_key, self._clock.now_ms(), MOST_AT_ONCE)
        call.noted.update(count=str(len(ids)), group=call.body.group_key)
        return Decided(ids)

    async def _decide(
        self, call: Call[Any, Any], decide: Callable[[Sequence[str], int], Awaitable[None]], ids: Sequence[str]
    ) -> Decided:
        checked = list(dict.fromkeys(checked_job_id(each) for each in ids))
        call.noted["count"] = str(len(checked))
        await decide(checked, self._clock.now_ms())
        return Decided(checked)
