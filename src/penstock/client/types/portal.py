"""Links to the customers' portal in the API."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.client.types.fields import Name

LONGEST_LINK_HOURS = 24 * 90


class NewPortalLink(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A link to create: for all subscriptions of a tenant, or for one of them, by id; it expires after some hours."""

    tenant: Name
    subscription_id: Name | None = None
    hours: Annotated[float, Meta(gt=0, le=LONGEST_LINK_HOURS)] = 24


class PortalLink(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A link to the portal. Its token is shown only here; whoever has it may use the portal until it expires."""

    tenant: str
    subscription_id: str | None
    expires_at: datetime
    token: str
    path: str
    """Where this API serves the portal, with the token after `#`, which browsers do not send to servers."""


class PortalLinksRevoked(msgspec.Struct, frozen=True):
    """A tenant whose links were revoked, all of them."""

    tenant: str
