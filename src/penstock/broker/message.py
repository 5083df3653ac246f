"""Messages as the broker's callers see them, and their copies for a dead-letter topic (BROKER-5)."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from penstock.domain.message import NO_ATTRIBUTES, Message
from penstock.engine import Entry

_PREFIX = "CloudPubSubDeadLetterSource"


class InternalMessage(msgspec.Struct, frozen=True, gc=False):
    """A message to publish (only data, attributes, ordering key and notes are used), or one that was pulled."""

    data: bytes
    attributes: Mapping[str, str] = NO_ATTRIBUTES
    ordering_key: str | None = None
    id: str = ""
    publish_time_ms: int = 0
    delivery_attempt: int = 1
    ack_id: str = ""
    notes: Mapping[str, str] = NO_ATTRIBUTES
    """What a protocol server adds for receivers; not checked like the publisher's attributes."""

    @property
    def length(self) -> int:
        """The size of the data in bytes."""
        return len(self.data)

    @property
    def publish_time(self) -> datetime:
        """When the broker accepted the message."""
        return datetime.fromtimestamp(self.publish_time_ms / 1000, UTC)


def dead_letter_copy(entry: Entry, subscription_name: str) -> Message:
    """Copy a message with its id, publish time, attributes and ordering key, and add where it came from."""
    message = entry.message
    published = datetime.fromtimestamp(message.sent_ms / 1000, UTC)
    source = {
        f"{_PREFIX}Subscription": subscription_name,
        f"{_PREFIX}DeliveryCount": str(entry.receive_count),
        f"{_PREFIX}TopicPublishTime": published.isoformat(timespec="milliseconds"),
    }
    attributes = {**message.attributes, **source}
    gained = {key: value for key, value in source.items() if key not in message.attributes}
    size_bytes = message.size_bytes + sum(len(key) + len(value.encode()) for key, value in gained.items())
    return msgspec.structs.replace(message, attributes=attributes, size_bytes=size_bytes, deliver_at_ms=0)
