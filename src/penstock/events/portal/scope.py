"""What the holder of a portal's token may do: the operations of this table, on what belongs to its scope.

Everything else is refused, so that a new operation is closed to customers until it stands here.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeAlias

from msgspec import UNSET

from penstock.domain.subscription import Subscription
from penstock.events.errors import EventNotFound, JobNotFound, UnknownSubscription
from penstock.events.fields import checked_id, checked_job_id
from penstock.events.portal.tokens import PREFIX, PortalTokens
from penstock.events.statistics import Dimension
from penstock.events.store import JobFilter, JobRepository
from penstock.http.api import AnyRoute, Call
from penstock.http.auth import Caller, CallerScope
from penstock.http.problems import Refused

_MOST_JOBS_OF_EVENT = 1000


def covers(scope: CallerScope, subscription: Subscription) -> bool:
    """Return whether a subscription belongs to a scope."""
    return subscription.tenant == scope.tenant and scope.subscription_id in (None, subscription.id)


class PortalScope:
    """Refuses calls of the portal's callers that are not about what is theirs. To them, the rest does not exist."""

    def __init__(self, repository: JobRepository, tokens: PortalTokens) -> None:
        self._repository = repository
        self._tokens = tokens

    async def caller(self, token: str) -> Caller | None:
        """Return who holds a token of the portal; None for another kind of token."""
        return await self._tokens.caller(token) if token.startswith(PREFIX) else None

    def check_route(self, route: AnyRoute) -> None:
        """Raise Refused for an operation that the portal does not offer."""
        _check_of(route)

    async def check(self, route: AnyRoute, call: Call[Any, Any]) -> None:
        """Raise Refused or a NotFound unless a call is about what belongs to its caller."""
        scope = call.caller.scope
        if scope is None:
            raise Refused(HTTPStatus.FORBIDDEN, "the portal is for those who have a link")
        await _check_of(route)(self, scope, call)

    async def anything(self, scope: CallerScope, call: Call[Any, Any]) -> None:
        """Check nothing: the handler itself answers with what is the caller's."""

    async def subscription(self, scope: CallerScope, call: Call[Any, Any]) -> None:
        """Check the subscription that the path names."""
        await self._subscription(scope, checked_id(call.path["id"], UnknownSubscription))

    async def target(self, scope: CallerScope, call: Call[Any, Any]) -> None:
        """Check that nothing but the target changes, and that it stays the customer's own endpoint."""
        await self.subscription(scope, call)
        given = {name for name in call.body.__struct_fields__ if getattr(call.body, name) is not UNSET}
        if given != {"target"} or not call.body.target.lower().startswith(("http://", "https://")):
            raise Refused(HTTPStatus.FORBIDDEN, "the portal changes the target only, to an http or https URL")

    async def named_subscription(self, scope: CallerScope, call: Call[Any, Any]) -> None:
        """Check the subscription of a query, which has to name one."""
        if call.query.subscription_id is None:
            raise Refused(HTTPStatus.FORBIDDEN, "give a subscriptionId")
        await self._subscription(scope, checked_id(call.query.subscription_id, UnknownSubscription))

    async def statistics(self, scope: CallerScope, call: Call[Any, Any]) -> None:
        """Check that the statistics are those of one subscription."""
        if call.query.by is not Dimension.SUBSCRIPTION or call.query.name is None:
            raise Refused(HTTPStatus.FORBIDDEN, "give by=subscription, and its id as name")
        await self._subscription(scope, checked_id(call.query.name, UnknownSubscription))

    async def job(self, scope: CallerScope, call: Call[Any, Any]) -> None:
        """Check the job that the path names."""
        await self._jobs(scope, [call.path["id"]])

    async def jobs(self, scope: CallerScope, call: Call[Any, Any]) -> None:
        """Check the jobs that the body names."""
        await self._jobs(scope, call.body.ids)

    async def group(self, scope: CallerScope, call: Call[Any, Any]) -> None:
        """Check the group that the body names, which begins with its subscription's id."""
        owner = call.body.group_key.partition(":")[0]
        await self._subscription(scope, checked_id(owner, UnknownSubscription))

    async def event(self, scope: CallerScope, call: Call[Any, Any]) -> None:
        """Check that a subscription of the scope has a job for the event that the path names."""
        event_id = checked_id(call.path["id"], EventNotFound)
        wanted = JobFilter(event_id=event_id, tenant=scope.tenant, subscription_id=scope.subscription_id)
        page = await self._repository.list_jobs(wanted, None, _MOST_JOBS_OF_EVENT)
        if all(job.subscription_id is None for job in page.jobs):
            raise EventNotFound(event_id)

    async def _subscription(self, scope: CallerScope, subscription_id: str) -> None:
        if not covers(scope, await self._repository.get_subscription(subscription_id)):
            raise UnknownSubscription(subscription_id)

    async def _jobs(self, scope: CallerScope, ids: Sequence[str]) -> None:
        for each in ids:
            job_id = checked_job_id(each)
            job = await self._repository.get_job(job_id)
            is_own = job.subscription_id is not None and job.tenant == scope.tenant
            if not is_own or scope.subscription_id not in (None, job.subscription_id):
                raise JobNotFound(job_id)


_Check: TypeAlias = Callable[[PortalScope, CallerScope, Call[Any, Any]], Awaitable[None]]
_SUBSCRIPTIONS, _JOBS = "/api/v1/subscriptions", "/api/v1/jobs"

SCOPED: Mapping[str, _Check] = {
    "GET /api/v1/caller": PortalScope.anything,
    f"GET {_SUBSCRIPTIONS}": PortalScope.anything,
    f"GET {_SUBSCRIPTIONS}/{{id}}": PortalScope.subscription,
    f"PATCH {_SUBSCRIPTIONS}/{{id}}": PortalScope.target,
    f"GET {_SUBSCRIPTIONS}/{{id}}/health": PortalScope.subscription,
    f"GET {_SUBSCRIPTIONS}/{{id}}/failures": PortalScope.subscription,
    f"POST {_SUBSCRIPTIONS}/{{id}}/pause": PortalScope.subscription,
    f"POST {_SUBSCRIPTIONS}/{{id}}/resume": PortalScope.subscription,
    f"POST {_SUBSCRIPTIONS}/{{id}}/test": PortalScope.subscription,
    f"POST {_SUBSCRIPTIONS}/{{id}}/rotate-secret": PortalScope.subscription,
    f"POST {_SUBSCRIPTIONS}/{{id}}/finish-rotation": PortalScope.subscription,
    f"GET {_JOBS}": PortalScope.named_subscription,
    f"GET {_JOBS}/{{id}}": PortalScope.job,
    f"GET {_JOBS}/{{id}}/attempts": PortalScope.job,
    f"POST {_JOBS}/{{id}}/retry": PortalScope.job,
    f"POST {_JOBS}/retry": PortalScope.jobs,
    f"POST {_JOBS}/retry-group": PortalScope.group,
    "GET /api/v1/groups/held": PortalScope.named_subscription,
    "GET /api/v1/statistics/history": PortalScope.statistics,
    "GET /api/v1/events/{id}": PortalScope.event,
}
"""The operations that the portal offers, each with the check of what it is about."""


def _check_of(route: AnyRoute) -> _Check:
    found = SCOPED.get(f"{route.method} {route.path}")
    if found is None:
        raise Refused(HTTPStatus.FORBIDDEN, "the portal does not offer this")
    return found
