"""Which messages may be published (BR-017), and which of them a subscription does not get."""

import logging
from collections.abc import Mapping, Sequence

from penstock.broker.errors import InvalidMessage, SubscriptionFull
from penstock.broker.message import InternalMessage
from penstock.broker.options import Overflow
from penstock.broker.subscription import BrokerSubscription
from penstock.domain.ids import TSID_LENGTH
from penstock.domain.limits import (
    MAX_ATTRIBUTE_KEY_BYTES,
    MAX_ATTRIBUTE_VALUE_BYTES,
    MAX_MESSAGE_BYTES,
    RESERVED_ATTRIBUTE_PREFIXES,
)
from penstock.domain.message import NO_ATTRIBUTES, Message

log = logging.getLogger(__name__)

# The id and the eight bytes of publish time of every message.
_METADATA_BYTES = TSID_LENGTH + 8


def skips(
    subscriptions: Sequence[BrokerSubscription], messages: Sequence[Message], now_ms: int
) -> dict[int, int] | None:
    """Return queue id → a bit for each message its subscription does not get; raise SubscriptionFull if one rejects."""
    sizes = [message.size_bytes for message in messages]
    total_bytes = sum(sizes)
    full = [found for found in subscriptions if not found.has_capacity(len(sizes), total_bytes)]
    for subscription in full:
        if subscription.config.options.overflow is Overflow.REJECT:
            raise SubscriptionFull(
                f"subscription {subscription.name} is at its capacity and rejects; "
                "ack what waits there, raise max_messages or max_bytes, or choose overflow 'drop'"
            )
    found = unwanted_skips(subscriptions, messages)
    for subscription in full:
        bits = _drop_beyond_capacity(subscription, sizes, now_ms)
        found[subscription.queue.id] = found.get(subscription.queue.id, 0) | bits
    return found or None


def unwanted_skips(subscriptions: Sequence[BrokerSubscription], messages: Sequence[Message]) -> dict[int, int]:
    """Do the same for unwanted messages only, ignoring capacity."""
    found: dict[int, int] = {}
    for subscription in subscriptions:
        if subscription.unwanted is not None and (bits := subscription.unwanted_bits(messages)):
            found[subscription.queue.id] = bits
    return found


def _drop_beyond_capacity(subscription: BrokerSubscription, sizes: list[int], now_ms: int) -> int:
    bits = kept = kept_bytes = 0
    for index, size in enumerate(sizes):
        if subscription.has_capacity(kept + 1, kept_bytes + size):
            kept, kept_bytes = kept + 1, kept_bytes + size
        else:
            bits |= 1 << index
    if subscription.count_drops(bits.bit_count(), now_ms):
        log.warning(
            "subscription is at its capacity, new messages are dropped for it (%d so far)",
            subscription.dropped,
            extra={"queue": subscription.name},
        )
    return bits


def checked_size(message: InternalMessage) -> int:
    """Return the size of a message with attributes and metadata; raise InvalidMessage if it is invalid."""
    data = message.data
    if type(data) is not bytes:
        raise InvalidMessage(f"data must be bytes, got {type(data).__name__}")
    size_bytes = len(data) + _METADATA_BYTES
    if message.attributes is not NO_ATTRIBUTES:
        size_bytes += _checked_attributes(message.attributes)
    key = message.ordering_key
    if key is not None:
        if type(key) is not str:
            raise InvalidMessage(f"ordering_key must be a string, got {type(key).__name__}")
        size_bytes += _utf8_length("ordering_key", key)
    if size_bytes > MAX_MESSAGE_BYTES:
        raise InvalidMessage(
            f"message of {size_bytes} bytes is larger than {MAX_MESSAGE_BYTES} (data, attributes and metadata together)"
        )
    return size_bytes


def _checked_attributes(attributes: Mapping[str, str]) -> int:
    if not isinstance(attributes, Mapping):
        raise InvalidMessage(f"attributes must be a mapping, got {type(attributes).__name__}")
    size_bytes = 0
    for key, value in attributes.items():
        if type(key) is not str or not key:
            raise InvalidMessage(f"attribute keys must be non-empty strings, got {key!r}")
        if key.startswith(RESERVED_ATTRIBUTE_PREFIXES):
            raise InvalidMessage(f"attribute key {key!r} starts with a reserved prefix ('goog', 'googclient_')")
        if type(value) is not str:
            raise InvalidMessage(f"attribute {key!r} must be a string, got {type(value).__name__}")
        key_bytes, value_bytes = _utf8_length("attribute key", key), _utf8_length(f"attribute {key!r}", value)
        if key_bytes > MAX_ATTRIBUTE_KEY_BYTES:
            raise InvalidMessage(
                f"attribute key {key[:40]!r}… has {key_bytes} bytes, at most {MAX_ATTRIBUTE_KEY_BYTES} are allowed"
            )
        if value_bytes > MAX_ATTRIBUTE_VALUE_BYTES:
            raise InvalidMessage(
                f"attribute {key!r} has {value_bytes} bytes, at most {MAX_ATTRIBUTE_VALUE_BYTES} are allowed"
            )
        size_bytes += key_bytes + value_bytes
    return size_bytes


def _utf8_length(what: str, text: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidMessage(f"{what} is not valid Unicode: {text[:40]!r}") from None
