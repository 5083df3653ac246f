"""An event, in the shape of CloudEvents."""

from collections.abc import Mapping

import msgspec

from penstock.domain.message import NO_ATTRIBUTES

PRIORITY_EXTENSION = "highpriority"


def is_high_priority_event(attributes: Mapping[str, str]) -> bool:
    """Return whether an event with these extensions has high priority."""
    return attributes.get(PRIORITY_EXTENSION) == "true"


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as its publisher sent it; `id` is Penstock's, `external_id` is the publisher's.

    Publishing an event again (same tenant, source and external id) returns the first one.
    """

    id: str
    source: str
    type: str
    received_ms: int
    external_id: str = ""
    subject: str | None = None
    time_ms: int | None = None
    data: bytes = b""
    content_type: str = "application/json"
    group: str | None = None
    tenant: str = ""
    attributes: Mapping[str, str] = NO_ATTRIBUTES

    @property
    def cloud_id(self) -> str:
        """The id that subscribers see."""
        return self.external_id or self.id

    @property
    def high_priority(self) -> bool:
        """Whether its jobs go before the regular ones of their group: the extension `highpriority` is true."""
        return is_high_priority_event(self.attributes)

    @property
    def filterable(self) -> dict[str, str]:
        """The attributes that a subscription's filter can use: the extensions and the standard ones."""
        named = {"id": self.cloud_id, "source": self.source, "type": self.type}
        if self.subject is not None:
            named["subject"] = self.subject
        return {**self.attributes, **named}
