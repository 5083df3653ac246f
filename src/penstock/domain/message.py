"""A message as its publisher sent it: a frozen value shared by every queue it waits in."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec


class TypedValue(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An attribute value with the name of its type, for protocols with typed attributes; text is UTF-8."""

    type: str
    value: bytes


AttributeValue = str | TypedValue

NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})


class Message(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One message; `group` and `dedup_id` are empty if it has none, `deliver_at_ms` is 0 if it is due immediately."""

    id: str
    body: bytes
    sent_ms: int
    size_bytes: int
    group: str = ""
    attributes: Mapping[str, AttributeValue] = NO_ATTRIBUTES
    dedup_id: str = ""
    deliver_at_ms: int = 0
    notes: Mapping[str, str] = NO_ATTRIBUTES
    """What the system adds to what the publisher sent: sender, trace, source of a dead letter."""
