"""An event, as publishers give it and as subscribers get it; on the wire it is a CloudEvent."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from penstock.domain.errors import InvalidArgument
from penstock.domain.limits import MIB
from penstock.edge.chance import random_bytes

MOST_AT_ONCE = 1000
MOST_BYTES_AT_ONCE = 8 * MIB

_DEFAULT_CONTENT_TYPE = "application/json"
_ID_BYTES = 16


def new_event_id() -> str:
    """An id that no other event has."""
    return random_bytes(_ID_BYTES).hex()


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened. Events of one `key` arrive in order; the same `source` and `id` again change nothing.

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


class _CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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


_NAMED = frozenset({"specversion", *_CloudEvent.__struct_fields__})


def encode_event(event: Event) -> bytes:
    """The event as the API takes it."""
    told = _CloudEvent(
        id=event.id,
        source=event.source,
        type=event.type,
        subject=event.subject,
        time=event.time,
        partitionkey=event.key,
        tenant=event.tenant,
        datacontenttype=event.content_type,
        data=None if isinstance(event.data, bytes) else event.data,
        data_base64=b64encode(event.data).decode() if isinstance(event.data, bytes) else None,
    )
    named: dict[str, object] = msgspec.to_builtins(told, builtin_types=(datetime,))
    return msgspec.json.encode({**event.attributes, "specversion": "1.0", **named})


def decode_event(content: bytes) -> Event:
    """The event in a webhook's body; InvalidArgument if there is none."""
    try:
        told = msgspec.json.decode(content, type=_CloudEvent)
        members = msgspec.json.decode(content, type=dict[str, object])
        data = told.data if told.data_base64 is None else b64decode(told.data_base64, validate=True)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"the body is not an event: {error}") from error
    return Event(
        type=told.type,
        data=data,
        key=told.partitionkey,
        id=told.id,
        source=told.source,
        subject=told.subject,
        time=told.time,
        tenant=told.tenant,
        content_type=told.datacontenttype,
        attributes={name: str(value) for name, value in members.items() if name not in _NAMED},
    )


def in_batches(events: Iterable[Event]) -> Iterator[bytes]:
    """Bodies of requests that publish these events, in order, none larger than the API takes."""
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
