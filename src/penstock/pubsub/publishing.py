"""Publish: what a request may hold, and its messages in the words of the broker."""

from collections.abc import Sequence

from google.pubsub_v1 import types

from penstock.broker.message import InternalMessage
from penstock.domain.message import NO_ATTRIBUTES
from penstock.pubsub.errors import InvalidRequest
from penstock.pubsub.limits import MAX_ATTRIBUTES, MAX_ORDERING_KEY_BYTES, MAX_PUBLISH_BYTES, MAX_PUBLISH_MESSAGES


def check_publish(request: types.PublishRequest) -> None:
    """Raise InvalidRequest for a request that is empty or too large."""
    count = len(request.messages)
    if not 1 <= count <= MAX_PUBLISH_MESSAGES:
        raise InvalidRequest(f"a publish has 1 to {MAX_PUBLISH_MESSAGES} messages, got {count}; send several")
    size_bytes = request.ByteSize()
    if size_bytes > MAX_PUBLISH_BYTES:
        raise InvalidRequest(f"a publish has at most {MAX_PUBLISH_BYTES} bytes, got {size_bytes}; send several")


def published(messages: Sequence[types.PubsubMessage]) -> list[InternalMessage]:
    """The messages of a request, checked for what the broker does not check itself."""
    return [_message(message) for message in messages]


def _message(message: types.PubsubMessage) -> InternalMessage:
    data = message.data
    attributes = message.attributes
    if attributes:
        if len(attributes) > MAX_ATTRIBUTES:
            raise InvalidRequest(f"a message has at most {MAX_ATTRIBUTES} attributes, got {len(attributes)}")
    elif not data:
        raise InvalidRequest("a message must have data or at least one attribute")
    key = message.ordering_key
    if key and len(key.encode()) > MAX_ORDERING_KEY_BYTES:
        raise InvalidRequest(f"an ordering key has at most {MAX_ORDERING_KEY_BYTES} bytes, got {len(key.encode())}")
    return InternalMessage(data, dict(attributes) if attributes else NO_ATTRIBUTES, key or None)
