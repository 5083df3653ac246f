"""`/api/v1/deliveries`: what was finished lately, for charts by group and a feed."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.jobs.api.fields import Limit
from penstock.jobs.inspecting import FinishedJob
from penstock.jobs.repository import JobRepository
from penstock.telemetry.routes import AnyRoute, Call, NoBody, Route

PATH = "/api/v1/deliveries"


class DeliveryQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Since when, in milliseconds since the Unix epoch, and how many at most."""

    since_ms: Annotated[int, Meta(ge=0)] = 0
    limit: Limit = 200


class DeliveryList(msgspec.Struct, frozen=True):
    """Jobs that are over, the last one first. A limit that is reached leaves the older ones out."""

    deliveries: list[FinishedJob]


class DeliveryRoutes:
    """The route of what was finished lately."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository

    def routes(self) -> tuple[AnyRoute, ...]:
        """What is served."""
        return (
            Route(
                method="GET",
                path=PATH,
                summary="Jobs that were finished lately, with their last delivery, the last one first.",
                answer=DeliveryList,
                query=DeliveryQuery,
                handler=self._list,
            ),
        )

    async def _list(self, call: Call[DeliveryQuery, NoBody]) -> DeliveryList:
        return DeliveryList(await self._repository.finished_lately(call.query.since_ms, call.query.limit))
