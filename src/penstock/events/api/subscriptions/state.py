"""`/api/v1/subscriptions/{id}/health` and `/failures`: how one subscription stands, and what failed lately."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.client.types import FailureList, FailureView, SubscriptionReport
from penstock.domain.errors import Unavailable
from penstock.events.api.health.watch import HealthWatch
from penstock.events.api.jobs.types import attempt_view
from penstock.events.errors import UnknownSubscription
from penstock.events.fields import checked_id
from penstock.events.store import FailedDelivery, JobRepository
from penstock.http.api import Call, NoBody, NoQuery, route

_ONE = "/api/v1/subscriptions/{id}"


class FailureQuery(msgspec.Struct, frozen=True):
    """How many failures to return."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 20


class SubscriptionStateRoutes:
    """The routes that show how a subscription stands."""

    def __init__(self, repository: JobRepository, health: HealthWatch) -> None:
        self._repository = repository
        self._health = health

    @route("GET", f"{_ONE}/health", summary="The health of one subscription, with its reasons.")
    async def _state(self, call: Call[NoQuery, NoBody]) -> SubscriptionReport:
        subscription_id = await self._known(call.path)
        report = await self._health.knowing(subscription_id)
        found = next((each for each in report.subscriptions if each.id == subscription_id), None)
        if found is None:
            # The database does not answer, or the subscription was deleted meanwhile.
            raise Unavailable(report.summary)
        return SubscriptionReport(found, [each for each in report.reasons if each.subscription_id == subscription_id])

    @route("GET", f"{_ONE}/failures", summary="The newest failed deliveries of a subscription, with their responses.")
    async def _failures(self, call: Call[FailureQuery, NoBody]) -> FailureList:
        subscription_id = await self._known(call.path)
        found = await self._repository.recent_failures(subscription_id, call.query.limit)
        return FailureList([_view(each) for each in found])

    async def _known(self, path: Mapping[str, str]) -> str:
        subscription_id = checked_id(path["id"], UnknownSubscription)
        return (await self._repository.get_subscription(subscription_id)).id


def _view(failed: FailedDelivery) -> FailureView:
    return FailureView(
        job_id=failed.job_id,
        event_id=failed.event_id,
        key=failed.group,
        group_key=failed.group_key,
        type=failed.type,
        target=failed.target,
        attempt=attempt_view(failed.attempt),
    )
