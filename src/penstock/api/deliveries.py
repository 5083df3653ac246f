"""`/api/v1/deliveries`: what was finished lately, for charts by group and a feed."""

import msgspec

from penstock.http.api.paging import Cursor, Limit, first_of, key_before
from penstock.http.api.routes import AnyRoute, Call, NoBody, Route
from penstock.jobs.api.fields import EpochMs, Name
from penstock.jobs.inspecting import THE_NEWEST, FinishedJob
from penstock.jobs.repository import JobRepository

DELIVERIES_PATH = "/api/v1/deliveries"


class DeliveryQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Since when, in milliseconds since the Unix epoch, how many, and where to go on."""

    since_ms: EpochMs = 0
    limit: Limit = 200
    cursor: Cursor | None = None


class DeliveryList(msgspec.Struct, frozen=True):
    """Jobs that are over, the last one first; the cursor asks for those before them, null after the last."""

    deliveries: list[FinishedJob]
    cursor: str | None


class DeliveryRoutes:
    """The route of what was finished lately."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository

    def routes(self) -> tuple[AnyRoute, ...]:
        """What is served."""
        return (
            Route(
                method="GET",
                path=DELIVERIES_PATH,
                summary="Jobs that were finished lately, with their last delivery, the last one first.",
                answer=DeliveryList,
                query=DeliveryQuery,
                handler=self._list,
            ),
        )

    async def _list(self, call: Call[DeliveryQuery, NoBody]) -> DeliveryList:
        asked = call.query
        before = THE_NEWEST if asked.cursor is None else key_before(asked.cursor, tuple[EpochMs, Name])
        found = await self._repository.finished_lately(asked.since_ms, before, asked.limit + 1)
        return DeliveryList(*first_of(found, lambda job: (job.finished_at_ms, job.id), asked.limit))
