"""What a subscriber gets: an event as one JSON document, in CloudEvents' structured form.

Structured, because a signature covers the body and not the headers: what an event is, and whose, is signed with it.
"""

from base64 import b64encode
from datetime import UTC, datetime

import msgspec

from penstock.domain.event import Event
from penstock.domain.job import DispatchJob

SPEC_VERSION = "1.0"
CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"

_encode = msgspec.json.Encoder().encode


class Envelope(msgspec.Struct, frozen=True):
    """A body and its type."""

    content_type: str
    body: bytes


def envelope_of(job: DispatchJob, event: Event | None) -> Envelope:
    """The body of a job's deliveries: its event, or its own payload as it was given."""
    if event is None:
        return Envelope(job.content_type, job.payload or b"")
    return Envelope(CONTENT_TYPE, cloud_event(event))


def cloud_event(event: Event) -> bytes:
    """An event in CloudEvents' JSON format."""
    named: dict[str, object] = {
        "specversion": SPEC_VERSION,
        "id": event.cloud_id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": None if event.time_ms is None else datetime.fromtimestamp(event.time_ms / 1000, UTC),
        "partitionkey": event.group,
        "tenant": event.tenant or None,
    }
    # Extensions first: none of them can pass for what is named here.
    told = {**event.attributes, **named}
    return _encode({name: value for name, value in told.items() if value is not None} | _data(event))


def is_json(content_type: str) -> bool:
    """Whether content of this type is JSON."""
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type.endswith(("/json", "+json"))


def _data(event: Event) -> dict[str, object]:
    """The data in the one of three forms that CloudEvents has for its type."""
    if not event.data:
        return {}
    kind = {"datacontenttype": event.content_type}
    if is_json(event.content_type):
        try:
            return {**kind, "data": msgspec.json.decode(event.data, type=msgspec.Raw)}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    elif event.content_type.startswith("text/"):
        try:
            return {**kind, "data": event.data.decode()}
        except UnicodeDecodeError:
            pass
    return {**kind, "data_base64": b64encode(event.data).decode()}
