"""What may be published (seed 001, BR-017)."""

from collections.abc import Mapping

from penstock.broker.errors import InvalidMessage
from penstock.broker.message import InternalMessage
from penstock.domain.ids import TSID_LENGTH
from penstock.domain.limits import (
    MAX_ATTRIBUTE_KEY_BYTES,
    MAX_ATTRIBUTE_VALUE_BYTES,
    MAX_MESSAGE_BYTES,
    RESERVED_ATTRIBUTE_PREFIXES,
)
from penstock.domain.message import NO_ATTRIBUTES

# The id and the eight bytes of publish time that every message carries.
_METADATA_BYTES = TSID_LENGTH + 8


def checked_size(message: InternalMessage) -> int:
    """The size of a message in bytes (data, attributes, ordering key, metadata); InvalidMessage when it is not fit."""
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
