"""A message as its publisher sent it, shared by every queue it waits in, and the partition of its group.

The server, the router, the scheduler and Spark all use the same partition function.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

_OFFSET_BASIS = 2166136261
_PRIME = 16777619
_MASK_32 = 0xFFFFFFFF

# Groups repeat from message to message, and a cache hit costs a tenth of hashing; the longest ids take about 4 MiB.
_REMEMBERED_GROUPS = 16_384


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


@lru_cache(maxsize=_REMEMBERED_GROUPS)
def fnv1a_32(text: str) -> int:
    """Return the 32-bit FNV-1a hash of the text's UTF-8 bytes."""
    digest = _OFFSET_BASIS
    for byte in text.encode():
        digest = ((digest ^ byte) * _PRIME) & _MASK_32
    return digest


def partition_of(group: str, count: int) -> int:
    """Return the partition of a group among `count`, a power of two; messages without a group go to the first."""
    if count <= 1 or not group:
        return 0
    return fnv1a_32(group) & (count - 1)
