"""An event, in the shape of CloudEvents."""

from collections.abc import Mapping

import msgspec

from penstock.domain.message import NO_ATTRIBUTES


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, as its publisher told it; `id` is ours, `external_id` is the publisher's.

    A publisher that tells the same event twice (same tenant, source and external id) is answered with the first.
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
    def filterable(self) -> dict[str, str]:
        """What a subscription's filter can ask for: the extensions, and what every event has."""
        named = {"id": self.cloud_id, "source": self.source, "type": self.type}
        if self.subject is not None:
            named["subject"] = self.subject
        return {**self.attributes, **named}
