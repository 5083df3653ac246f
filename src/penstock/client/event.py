"""An event, as publishers create it and subscribers receive it; in requests it is a CloudEvent."""

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, UnsetType

from penstock.client.types import MOST_AT_ONCE, CloudEvent
from penstock.domain.errors import InvalidArgument
from penstock.domain.event import PRIORITY_EXTENSION, is_json
from penstock.domain.limits import MIB
from penstock.edge.randomness import random_bytes

MOST_BYTES_AT_ONCE = 8 * MIB

_DEFAULT_CONTENT_TYPE = "application/json"
_ID_BYTES = 16
_NOT_ATTRIBUTES = frozenset({*CloudEvent.__struct_fields__, PRIORITY_EXTENSION})


def new_event_id() -> str:
    """Return a unique id."""
    return random_bytes(_ID_BYTES).hex()


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened. Events with the same `key` arrive in order, those of high priority before the others;
    each `source` and `id` is stored once.

    `data` is any JSON, a text with a `content_type` of text, or bytes of any type.
    """

    type: str
    data: object = None
    key: str | None = None
    id: str = msgspec.field(default_factory=new_event_id)
    source: str = "/penstock/client"
    subject: str | None = None
    time: datetime | None = None
    tenant: str | None = None
    content_type: str = _DEFAULT_CONTENT_TYPE
    attributes: Mapping[str, str | int | bool] = msgspec.field(default_factory=dict)
    high_priority: bool = False


class _Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """A CloudEvent in a webhook, read without the limits of publishing: a newer server may have higher ones."""

    id: str
    source: str
    type: str
    subject: str | None = None
    time: datetime | None = None
    partitionkey: str | None = None
    tenant: str | None = None
    datacontenttype: str = _DEFAULT_CONTENT_TYPE
    data: object = None
    data_base64: str | None = None


def encode_event(event: Event) -> bytes:
    """Return the event as the API accepts it."""
    named = msgspec.json.encode(
        CloudEvent(
            specversion="1.0",
            id=event.id,
            source=event.source,
            type=event.type,
            subject=event.subject,
            time=event.time,
            partitionkey=event.key,
            tenant=event.tenant,
            datacontenttype=None if event.content_type == _DEFAULT_CONTENT_TYPE else event.content_type,
            data=UNSET if isinstance(event.data, bytes) else json_of(event.data),
            data_base64=event.data if isinstance(event.data, bytes) else None,
        )
    )
    priority = {PRIORITY_EXTENSION: True} if event.high_priority else {}
    if not event.attributes and not priority:
        return named
    # Attributes first, so that none of them can replace a member with a meaning.
    return msgspec.json.encode({**event.attributes, **priority, **msgspec.json.decode(named, type=dict[str, Raw])})


def json_of(value: object) -> Raw | UnsetType:
    """Return a value as JSON for an optional member of a request; None is left out."""
    if value is None:
        return UNSET
    return value if isinstance(value, Raw) else Raw(msgspec.json.encode(value))


def decode_event(content: bytes) -> Event:
    """Return the event in a webhook's body; InvalidArgument if there is none."""
    try:
        read = msgspec.json.decode(content, type=_Delivered)
        members = msgspec.json.decode(content, type=dict[str, object])
        data = read.data if read.data_base64 is None else b64decode(read.data_base64, validate=True)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"the body is not an event: {error}") from error
    return Event(
        type=read.type,
        data=data,
        key=read.partitionkey,
        id=read.id,
        source=read.source,
        subject=read.subject,
        time=read.time,
        tenant=read.tenant,
        content_type=read.datacontenttype,
        attributes={name: str(value) for name, value in members.items() if name not in _NOT_ATTRIBUTES},
        high_priority=members.get(PRIORITY_EXTENSION) == "true",
    )


def decode_binary(attributes: Mapping[str, str], content_type: str, content: bytes) -> Event:
    """Return the event of a webhook in binary mode; InvalidArgument if it is not one."""
    named = {name: value for name, value in attributes.items() if name not in {"data", "data_base64"}}
    kind = {"datacontenttype": content_type or _DEFAULT_CONTENT_TYPE}
    return decode_event(msgspec.json.encode({**named, **kind, **_data_member(content_type, content)}))


def _data_member(content_type: str, content: bytes) -> dict[str, object]:
    """Return data as the JSON form of an event has it."""
    if not content:
        return {}
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if is_json(content_type):
            return {"data": msgspec.json.decode(content, type=Raw)}
        if content_type.startswith("text/"):
            return {"data": content.decode()}
    return {"data_base64": content}


def in_batches(events: Iterable[Event]) -> Iterator[bytes]:
    """Yield the bodies of requests that publish these events in order, none larger than the API accepts."""
    batch: list[bytes] = []
    size_bytes = 0
    for encoded in map(encode_event, events):
        if batch and (len(batch) == MOST_AT_ONCE or size_bytes + len(encoded) > MOST_BYTES_AT_ONCE):
            yield b"[%b]" % b",".join(batch)
            batch, size_bytes = [], 0
        batch.append(encoded)
        size_bytes += len(encoded)
    if batch:
        yield b"[%b]" % b",".join(batch)
