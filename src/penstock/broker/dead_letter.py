"""Dead letters: the copy that goes to the dead-letter topic (ruling 26)."""

from datetime import UTC, datetime

import msgspec

from penstock.domain.message import Message
from penstock.engine.entry import Entry

_PREFIX = "CloudPubSubDeadLetterSource"


def dead_letter_copy(entry: Entry, subscription_name: str) -> Message:
    """The message with its id, publish time, attributes and ordering key, and where it came from."""
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
