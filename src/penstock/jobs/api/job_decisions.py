"""What people decide about jobs: cancel, retry and ignore, one, several or a group."""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.edge.clock import Clock
from penstock.http.api.query import NoQuery
from penstock.http.api.routes import AnyRoute, Call, NoBody, Route
from penstock.jobs.api.fields import MOST_AT_ONCE, GroupKey, Name, checked_job_id
from penstock.jobs.api.jobs import PATH
from penstock.jobs.repository import JobRepository

_Decide = Callable[[Sequence[str], int], Awaitable[None]]


class JobIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs: it is done to all of them or, with an error, to none."""

    ids: Annotated[list[Name], Meta(min_length=1, max_length=MOST_AT_ONCE)]


class GroupToRetry(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A group, named as its jobs name it."""

    group_key: GroupKey


class Decided(msgspec.Struct, frozen=True):
    """The jobs it was done to, in order."""

    ids: list[str]


class JobDecisionRoutes:
    """The routes by which a person moves jobs."""

    def __init__(self, repository: JobRepository, clock: Clock) -> None:
        self._repository = repository
        self._clock = clock

    def routes(self) -> tuple[AnyRoute, ...]:
        """What is served."""
        repository = self._repository
        return (
            *self._pair("cancel", "Give up {} that no delivery has begun of.", repository.cancel),
            *self._pair("retry", "Begin anew with {} in ERROR.", repository.retry),
            *self._pair("ignore", "Give up {} in ERROR, so that what they block moves on.", repository.ignore),
            Route(
                method="POST",
                path=f"{PATH}/retry-group",
                summary=f"Begin anew with a group's jobs in ERROR, in order, the first {MOST_AT_ONCE} of them.",
                answer=Decided,
                body=GroupToRetry,
                handler=self._retry_group,
            ),
        )

    def _pair(self, verb: str, summary: str, decide: _Decide) -> tuple[AnyRoute, AnyRoute]:
        async def decided(ids: Sequence[str]) -> Decided:
            checked = list(dict.fromkeys(checked_job_id(each) for each in ids))
            await decide(checked, self._clock.now_ms())
            return Decided(checked)

        async def one(call: Call[NoQuery, NoBody]) -> Decided:
            return await decided([call.path["id"]])

        async def several(call: Call[NoQuery, JobIds]) -> Decided:
            return await decided(call.body.ids)

        return (
            Route(
                method="POST",
                path=f"{PATH}/{{id}}/{verb}",
                summary=summary.format("a job"),
                answer=Decided,
                handler=one,
                refusals=(HTTPStatus.CONFLICT,),
            ),
            Route(
                method="POST",
                path=f"{PATH}/{verb}",
                summary=summary.format("jobs"),
                answer=Decided,
                body=JobIds,
                handler=several,
                refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
            ),
        )

    async def _retry_group(self, call: Call[NoQuery, GroupToRetry]) -> Decided:
        ids = await self._repository.retry_group(call.body.group_key, self._clock.now_ms(), MOST_AT_ONCE)
        return Decided(ids)
