"""Converts a CloudEvent, as publishers send it, to the event that is stored."""

import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import UNSET, Raw

from penstock.client.types import MAX_DATA_BYTES, CloudEvent
from penstock.domain.errors import InvalidArgument
from penstock.domain.event import StoredEvent, is_json
from penstock.domain.matching import ONE_SEGMENT
from penstock.domain.message import NO_ATTRIBUTES
from penstock.events.fields import epoch_ms_of

MEDIA_TYPES = ("application/cloudevents+json", "application/cloudevents-batch+json", "application/json")
MOST_EXTENSIONS = 50
MOST_EXTENSION_CHARS = 4096
_DEFAULT_CONTENT_TYPE = "application/json"
_NAMED = frozenset(CloudEvent.__struct_fields__)
_type = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
_members = msgspec.json.Decoder(dict[str, Raw] | list[dict[str, Raw]])
_extension = msgspec.json.Decoder(str | int | bool | None)


def members_of(content: bytes) -> list[dict[str, Raw]]:
    """Return all members of the event, or of each event, in a valid body."""
    found = _members.decode(content)
    return found if isinstance(found, list) else [found]


def is_event_type(text: str) -> bool:
    """Return whether an event can have this type."""
    return _type.fullmatch(text) is not None and ONE_SEGMENT not in text


def event_of(given: CloudEvent, members: Mapping[str, Raw], event_id: str, now_ms: int) -> StoredEvent:
    """Return the published event; InvalidArgument says what is wrong with it."""
    if ONE_SEGMENT in given.type:
        raise InvalidArgument(
            f"{given.type!r} is a pattern, not the type of an event: leave out the *, which only subscriptions use"
        )
    data = _data(given)
    if len(data) > MAX_DATA_BYTES:
        raise InvalidArgument(
            f"the data of event {given.id!r} has {len(data)} bytes: at most {MAX_DATA_BYTES} are allowed"
        )
    return StoredEvent(
        id=event_id,
        source=given.source,
        type=given.type,
        received_ms=now_ms,
        external_id=given.id,
        subject=given.subject,
        time_ms=epoch_ms_of(given.time),
        data=data,
        content_type=given.datacontenttype or _DEFAULT_CONTENT_TYPE,
        group=given.partitionkey,
        tenant=given.tenant or "",
        attributes=_extensions(members.items()) or NO_ATTRIBUTES,
    )


def _data(given: CloudEvent) -> bytes:
    if given.data_base64 is not None:
        if given.data is not UNSET:
            raise InvalidArgument(f"event {given.id!r} has both data and data_base64: give one of them")
        return given.data_base64
    if not isinstance(given.data, Raw):
        return b""
    content = bytes(given.data)
    if given.datacontenttype is not None and not is_json(given.datacontenttype) and content.startswith(b'"'):
        return msgspec.json.decode(content, type=str).encode()
    return content


def _extensions(members: Iterable[tuple[str, Raw]]) -> dict[str, str]:
    found = {name: _text(name, value) for name, value in members if name not in _NAMED}
    if len(found) > MOST_EXTENSIONS:
        raise InvalidArgument(f"an event may have up to {MOST_EXTENSIONS} extensions, not {len(found)}")
    return {name: value for name, value in found.items() if value is not None}


def _text(name: str, raw: Raw) -> str | None:
    if not (name.isascii() and name.isalnum() and name == name.lower() and len(name) <= 64):
        raise InvalidArgument(f"{name[:100]!r} cannot be an extension: use up to 64 of the characters a-z and 0-9")
    try:
        value = _extension.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidArgument(f"the extension {name!r} is not a string, an integer or a boolean") from None
    text = None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if text is not None and len(text) > MOST_EXTENSION_CHARS:
        raise InvalidArgument(f"the extension {name!r} is longer than {MOST_EXTENSION_CHARS} characters")
    return text
