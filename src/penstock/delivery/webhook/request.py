"""The request that delivers a job: body, headers and signature.

An event is sent as one JSON document, in CloudEvents' structured form, unless its subscription wants the binary one: a
signature covers the body and not the headers, so only the structured form has the event's attributes signed too.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from penstock.delivery.http.request import Headers, RequestHead, head_with
from penstock.delivery.webhook.trace import span_of_delivery, trace_headers, trace_of_job
from penstock.domain.errors import InvalidArgument
from penstock.domain.event import StoredEvent, attribute_headers, is_json, percent_encoded
from penstock.domain.job import DispatchJob
from penstock.domain.job_state import DEFAULT_TIMEOUT_S
from penstock.domain.limits import SECOND_MS
from penstock.domain.replay import original_id
from penstock.domain.signing import ID_HEADER, TIMESTAMP_HEADER, Signature, sign
from penstock.domain.subscription import BodyFormat, CertificateWithKey, OAuth2Client, Subscription
from penstock.ops.telemetry import NoSpans, Spans

SPEC_VERSION = "1.0"
AUTHORIZATION = "authorization"
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


_NO_SPANS = NoSpans()
_encode = msgspec.json.Encoder().encode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_OPTIONAL = ("subject", "time", "partitionkey", "tenant")


class DeliveryRequest(msgspec.Struct, frozen=True):
    """A request, and its time-out."""

    head: RequestHead
    body: bytes
    signature: Signature | None
    timeout_s: float
    oauth2: OAuth2Client | None = None
    certificate: CertificateWithKey | None = None


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
    changing = trace_headers(
        trace_of_job(job, event, spans), span_of_delivery(job), job.headers if event is None else event.attributes
    )
    if envelope.attributes:
        changing = envelope.attributes | changing
    _add_identity(changing, job)
    if signature is None:
        changing |= {ID_HEADER: webhook_id, TIMESTAMP_HEADER: str(now_s)}
    users = job.headers if subscription is None else {**subscription.headers, **job.headers}
    replaced = tuple(changing)
    if subscription is not None and subscription.oauth2 is not None:
        replaced += (AUTHORIZATION,)
    fixed = _fixed_head(job.target, tuple(users.items()), envelope.content_type, replaced)
    head = fixed.with_values(tuple(changing.items()))
    if subscription is None:
        return DeliveryRequest(head, envelope.body, signature, DEFAULT_TIMEOUT_S)
    credentials = subscription.oauth2, subscription.client_certificate
    return DeliveryRequest(head, envelope.body, signature, subscription.timeout_s, *credentials)


@lru_cache(maxsize=4096)
def _fixed_head(target: str, users: Headers, content_type: str, replaced: tuple[str, ...]) -> RequestHead:
    """Return what the deliveries of a subscription have in common, without the users' headers that are replaced."""
    fixed = {name.lower(): value for name, value in users} | {"content-type": content_type, "user-agent": "penstock"}
    return head_with(target, tuple((name, value) for name, value in fixed.items() if name not in replaced))


def _add_identity(headers: dict[str, str], job: DispatchJob) -> None:
    headers[JOB_HEADER] = job.id
    if job.event_id is not None:
        headers[EVENT_HEADER] = job.event_id
    if job.subscription_id is not None:
        headers[SUBSCRIPTION_HEADER] = job.subscription_id
    headers[ATTEMPT_HEADER] = str(job.delivery_count)
    if job.group:
        headers[KEY_HEADER] = percent_encoded(job.group)
    if job.key_sequence is not None:
        headers[SEQUENCE_HEADER] = str(job.key_sequence)


class Envelope(msgspec.Struct, frozen=True):
    """A body and its content type."""

    content_type: str
    body: bytes
    attributes: dict[str, str] = {}
    """The event's attributes as headers, if they are not in the body."""


def envelope_of(job: DispatchJob, event: StoredEvent | None, body: BodyFormat = BodyFormat.CLOUDEVENT) -> Envelope:
    """Return the body of a job's deliveries: its event, or its own payload."""
    if event is None:
        return Envelope(job.content_type, job.payload or b"")
    if body is BodyFormat.SLACK:
        return Envelope("application/json", _encode({"text": _chat_text(event)}))
    if body is BodyFormat.BINARY:
        named = {name: _header_text(value) for name, value in _attributes(event).items()}
        return Envelope(event.content_type, event.data, attribute_headers(named))
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
    document = _attributes(event)
    if event.data:
        document["datacontenttype"] = event.content_type
        name, value = _data(event)
        document[name] = value
    return _encode(document)


def _attributes(event: StoredEvent) -> dict[str, object]:
    # Extensions first, so that none of them can replace a standard attribute.
    named: dict[str, object] = {
        **event.attributes,
        "specversion": SPEC_VERSION,
        "id": event.cloud_id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": None if event.time_ms is None else datetime.fromtimestamp(event.time_ms / 1000, UTC),
        "partitionkey": event.group,
        "tenant": event.tenant or None,
    }
    for name in _OPTIONAL:
        if named[name] is None:
            del named[name]
    return named


def _header_text(value: object) -> str:
    return msgspec.json.decode(_encode(value), type=str) if isinstance(value, datetime) else str(value)


def _data(event: StoredEvent) -> tuple[str, object]:
    """Return the data in one of CloudEvents' three forms, by its content type, and the form's name."""
    if is_json(event.content_type):
        try:
            return "data", _decode_raw(event.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    elif event.content_type.startswith("text/"):
        try:
            return "data", event.data.decode()
        except UnicodeDecodeError:
            pass
    return "data_base64", b64encode(event.data).decode()


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
