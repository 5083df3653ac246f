"""Feeds in the API: Pub/Sub topics whose messages become events."""

import msgspec

from penstock.client.types.fields import Name


class FeedBody(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """How messages become events: the type is that of an attribute of theirs, else `type`, else the topic's name."""

    type: Name | None = None
    type_attribute: Name | None = None
    tenant: Name | None = None


class FeedView(msgspec.Struct, frozen=True, rename="camel"):
    """A topic that feeds events, by its full name."""

    topic: str
    type: str
    type_attribute: str | None
    tenant: str


class FeedList(msgspec.Struct, frozen=True):
    """All feeds, by topic."""

    feeds: list[FeedView]
