"""The request that delivers a job: body, headers and signature.

An event is sent as one JSON document, in CloudEvents' structured form: a signature covers the body and not the headers,
so the event's attributes are signed too.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote

import msgspec

from penstock.delivery.http.request import Headers, RequestHead, head_with
from penstock.delivery.webhook.trace import span_of_delivery, trace_headers, trace_of_job
from penstock.domain.errors import InvalidArgument
from penstock.domain.event import StoredEvent, is_json
from penstock.domain.job import DispatchJob
from penstock.domain.job_state import DEFAULT_TIMEOUT_S
from penstock.domain.limits import SECOND_MS
from penstock.domain.replay import original_id
from penstock.domain.signing import ID_HEADER, TIMESTAMP_HEADER, Signature, sign
from penstock.domain.subscription import BodyFormat, Subscription
from penstock.ops.telemetry import NoSpans, Spans

SPEC_VERSION = "1.0"
CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
JOB_HEADER = "penstock-job"
EVENT_HEADER = "penstock-event"
SUBSCRIPTION_HEADER = "penstock-subscription"
ATTEMPT_HEADER = "penstock-attempt"
KEY_HEADER = "penstock-key"
SEQUENCE_HEADER = "penstock-sequence"
MAX_HEADERS = 50
MAX_VALUE_CHARS = 4096
MOST_CHAT_BYTES = 3000


_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,100}")
_VALUE = re.compile(r"[ -~]*")
_RESERVED_PREFIXES = ("webhook-", "penstock-", "proxy-")
_CONNECTION_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


# Visible ASCII without the quotation mark and the percent sign; `quote` never touches letters, digits and `_.-~`.
_PLAIN = "!#$&'()*+,/:;<=>?@[\\]^`{|}"
_NO_SPANS = NoSpans()
_encode = msgspec.json.Encoder().encode


class DeliveryRequest(msgspec.Struct, frozen=True):
    """A request, and its time-out."""

    head: RequestHead
    body: bytes
    signature: Signature | None
    timeout_s: float


def delivery_request(
    job: DispatchJob,
    event: StoredEvent | None,
    subscription: Subscription | None,
    now_ms: int,
    spans: Spans = _NO_SPANS,
) -> DeliveryRequest:
    """Return the request of the current attempt; raise InvalidArgument if the target, a header or a secret is invalid.

    `webhook-id` is the id of the first job: the same for every attempt and every replay, and different for every
    subscription.
    """
    webhook_id = original_id(job.id)
    envelope = envelope_of(job, event, BodyFormat.CLOUDEVENT if subscription is None else subscription.body)
    now_s = now_ms // SECOND_MS
    secrets = () if subscription is None else subscription.secrets
    signature = sign(secrets, webhook_id, now_s, envelope.body) if secrets else None
    traced = trace_headers(
        trace_of_job(job, event, spans), span_of_delivery(job), job.headers if event is None else event.attributes
    )
    changing = traced | _identity_headers(job)
    if signature is None:
        changing |= {ID_HEADER: webhook_id, TIMESTAMP_HEADER: str(now_s)}
    users = job.headers if subscription is None else {**subscription.headers, **job.headers}
    fixed = _fixed_head(job.target, tuple(users.items()), envelope.content_type, tuple(changing))
    head = fixed.with_values(tuple(changing.items()))
    return DeliveryRequest(
        head, envelope.body, signature, DEFAULT_TIMEOUT_S if subscription is None else subscription.timeout_s
    )


@lru_cache(maxsize=4096)
def _fixed_head(target: str, users: Headers, content_type: str, replaced: tuple[str, ...]) -> RequestHead:
    """Return what the deliveries of a subscription have in common, without the users' headers that are replaced."""
    fixed = {name.lower(): value for name, value in users} | {"content-type": content_type, "user-agent": "penstock"}
    return head_with(target, tuple((name, value) for name, value in fixed.items() if name not in replaced))


def _identity_headers(job: DispatchJob) -> dict[str, str]:
    named = {
        JOB_HEADER: job.id,
        EVENT_HEADER: job.event_id,
        SUBSCRIPTION_HEADER: job.subscription_id,
        ATTEMPT_HEADER: str(job.delivery_count),
        KEY_HEADER: percent_encoded(job.group) if job.group else None,
        SEQUENCE_HEADER: None if job.key_sequence is None else str(job.key_sequence),
    }
    return {name: value for name, value in named.items() if value is not None}


def percent_encoded(text: str) -> str:
    """Return text as the value of a header, as CloudEvents' HTTP binding writes it."""
    return quote(text, safe=_PLAIN, errors="replace")


class Envelope(msgspec.Struct, frozen=True):
    """A body and its content type."""

    content_type: str
    body: bytes


def envelope_of(job: DispatchJob, event: StoredEvent | None, body: BodyFormat = BodyFormat.CLOUDEVENT) -> Envelope:
    """Return the body of a job's deliveries: its event, or its own payload."""
    if event is None:
        return Envelope(job.content_type, job.payload or b"")
    if body is BodyFormat.SLACK:
        return Envelope("application/json", _encode({"text": _chat_text(event)}))
    return Envelope(CONTENT_TYPE, cloud_event(event))


def _chat_text(event: StoredEvent) -> str:
    """Return an event as a message of a chat: the text in its data, as alerts have one, or all of its data."""
    try:
        data = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        data = None
    said = data.get("text") if isinstance(data, dict) else None
    text = said if isinstance(said, str) else f"{event.type}: {event.data[:MOST_CHAT_BYTES].decode(errors='replace')}"
    # A person's name or a channel in the data must not call anyone.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cloud_event(event: StoredEvent) -> bytes:
    """Encode an event in CloudEvents' JSON format."""
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
    # Extensions first, so that none of them can replace a standard attribute.
    attributes = {**event.attributes, **named}
    return _encode({name: value for name, value in attributes.items() if value is not None} | _data(event))


def _data(event: StoredEvent) -> dict[str, object]:
    """Return the data in one of CloudEvents' three forms, by its content type."""
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


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return a user's headers with lower-case names; raise InvalidArgument if one is invalid or reserved."""
    if len(headers) > MAX_HEADERS:
        raise InvalidArgument(f"there are {len(headers)} headers; give {MAX_HEADERS} at most")
    for name, value in headers.items():
        if _NAME.fullmatch(name.lower()) is None:
            raise InvalidArgument(f"{name[:100]!r} is not a valid header name")
        if name.lower() in _CONNECTION_HEADERS or name.lower().startswith(_RESERVED_PREFIXES):
            raise InvalidArgument(f"the header {name!r} is set by Penstock; choose another name")
        if _VALUE.fullmatch(value) is None or len(value) > MAX_VALUE_CHARS:
            raise InvalidArgument(
                f"the value of the header {name!r} is invalid; use up to {MAX_VALUE_CHARS} ASCII characters"
            )
    return {name.lower(): value for name, value in headers.items()}
