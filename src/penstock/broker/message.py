"""Messages as the broker's callers see them."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from penstock.domain.message import NO_ATTRIBUTES


class InternalMessage(msgspec.Struct, frozen=True, gc=False):
    """A message to publish (only data, attributes, ordering key and notes are read), or one that was pulled."""

    data: bytes
    attributes: Mapping[str, str] = NO_ATTRIBUTES
    ordering_key: str | None = None
    id: str = ""
    publish_time_ms: int = 0
    delivery_attempt: int = 1
    ack_id: str = ""
    notes: Mapping[str, str] = NO_ATTRIBUTES
    """What a front adds for receivers beside the publisher's attributes; it passes no check of these."""

    @property
    def length(self) -> int:
        """The size of the data in bytes."""
        return len(self.data)

    @property
    def publish_time(self) -> datetime:
        """When the broker took the message in."""
        return datetime.fromtimestamp(self.publish_time_ms / 1000, UTC)
