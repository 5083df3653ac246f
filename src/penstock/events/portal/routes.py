"""`/api/v1/portal-links`: create links to the customers' portal, and revoke those of a tenant."""

from http import HTTPStatus

from penstock.client.types import NewPortalLink, PortalLink, PortalLinksRevoked
from penstock.domain.errors import FailedPrecondition
from penstock.domain.limits import SECOND_MS
from penstock.events.errors import UnknownSubscription
from penstock.events.fields import SMALL_BODY_BYTES, checked_id, moment_of
from penstock.events.portal.scope import covers
from penstock.events.portal.tokens import PortalTokens
from penstock.events.store import JobRepository
from penstock.http.api import Call, NoBody, NoQuery, route
from penstock.http.auth import CallerScope

PATH = "/api/v1/portal-links"
PAGE_PATH = "/portal"
_HOUR_S = 3600


class PortalLinkRoutes:
    """The routes of links to the portal; an API that requires no credentials has none, as they would limit no one."""

    def __init__(self, repository: JobRepository, tokens: PortalTokens, *, has_credentials: bool) -> None:
        self._repository = repository
        self._tokens = tokens
        self._has_credentials = has_credentials

    @route(
        "POST",
        PATH,
        summary="Create a link to the customers' portal, for a tenant or one of its subscriptions.",
        max_body_bytes=SMALL_BODY_BYTES,
        refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )
    async def _create(self, call: Call[NoQuery, NewPortalLink]) -> PortalLink:
        if not self._has_credentials:
            raise FailedPrecondition(
                "this API answers everyone without credentials, so a link would limit no one: "
                "set api.token or api.keys first"
            )
        body = call.body
        scope = CallerScope(body.tenant, body.subscription_id)
        if body.subscription_id is not None:
            given = checked_id(body.subscription_id, UnknownSubscription)
            subscription = await self._repository.get_subscription(given)
            if not covers(scope, subscription):
                raise UnknownSubscription(given)
            call.noted["name"] = subscription.name
        call.noted["tenant"] = body.tenant
        token, expires_s = await self._tokens.create(scope, round(body.hours * _HOUR_S))
        return PortalLink(
            tenant=body.tenant,
            subscription_id=body.subscription_id,
            expires_at=moment_of(expires_s * SECOND_MS),
            token=token,
            path=f"{PAGE_PATH}#token={token}",
        )

    @route("DELETE", f"{PATH}/{{tenant}}", summary="Revoke all links of a tenant, at once.")
    async def _revoke(self, call: Call[NoQuery, NoBody]) -> PortalLinksRevoked:
        tenant = call.path["tenant"].replace("\0", "\N{REPLACEMENT CHARACTER}")
        await self._tokens.revoke(tenant)
        return PortalLinksRevoked(tenant)
