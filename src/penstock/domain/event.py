"""An event, in the shape of CloudEvents, and its attributes as headers (CloudEvents' HTTP binding)."""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from penstock.domain.message import NO_ATTRIBUTES

PRIORITY_EXTENSION = "highpriority"
MISSING: Final = object()
"""The data of an event that has none, or none that is JSON."""
_UNREAD: Final = object()
BINARY_HEADER = "ce-specversion"
"""The header that a CloudEvent in binary mode has: its attributes are headers, its data is the body."""

_PREFIX = "ce-"
# Visible ASCII without the quotation mark and the percent sign; `quote` never touches letters, digits and `_.-~`.
_PLAIN = "!#$&'()*+,/:;<=>?@[\\]^`{|}"


class Validation(StrEnum):
    """What becomes of a published event that does not meet the schema of its type, or whose type is unknown."""

    OFF = "off"
    WARN = "warn"
    REJECT = "reject"


@lru_cache(maxsize=256)
def is_json(content_type: str) -> bool:
    """Return whether a content type is JSON."""
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type.endswith(("/json", "+json"))


class Filterable:
    """What filters can ask of an event: its attributes, and its data, which is decoded when a filter asks for it."""

    __slots__ = ("_content", "_data", "attributes")

    def __init__(self, attributes: Mapping[str, str], content: bytes, content_type: str) -> None:
        self.attributes = attributes
        self._content = content
        self._data: object = _UNREAD if content and is_json(content_type) else MISSING

    @property
    def data(self) -> object:
        """The decoded data, or MISSING."""
        if self._data is _UNREAD:
            try:
                self._data = msgspec.json.decode(self._content)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._data = MISSING
        return self._data


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
    def filterable(self) -> Filterable:
        """What a subscription's filter can use: the extensions, the standard attributes and the data."""
        named = {"id": self.cloud_id, "source": self.source, "type": self.type}
        if self.subject is not None:
            named["subject"] = self.subject
        return Filterable({**self.attributes, **named}, self.data, self.content_type)


def percent_encoded(text: str) -> str:
    """Return text as the value of a header."""
    return quote(text, safe=_PLAIN, errors="replace")


def percent_decoded(value: str) -> str:
    """Return the text of a header's value; one that is not percent-encoded UTF-8 stays as it is."""
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        return value


def attribute_headers(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of CloudEvents' attributes."""
    return {_PREFIX + name: percent_encoded(value) for name, value in attributes.items()}


def attributes_in(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the CloudEvents attributes in headers, whose names are lower-case."""
    return {
        name.removeprefix(_PREFIX): percent_decoded(value)
        for name, value in headers.items()
        if name.startswith(_PREFIX)
    }
