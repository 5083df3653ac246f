"""A job as the request that delivers it: body, headers and signature.

What a subscriber gets: an event as one JSON document, in CloudEvents' structured form.

Structured, because a signature covers the body and not the headers: what an event is, and whose, is signed with it.

The headers that subscribers and jobs may set on their deliveries, and those that are ours.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from penstock.delivery.http.request import RequestHead, head_with
from penstock.delivery.webhook.trace import span_of_delivery, trace_headers, trace_of_job
from penstock.domain.errors import InvalidArgument
from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.domain.job_state import DEFAULT_TIMEOUT_S
from penstock.domain.limits import SECOND_MS
from penstock.domain.replay import original_id
from penstock.domain.signing import ID_HEADER, TIMESTAMP_HEADER, Signature, sign
from penstock.domain.subscription import Subscription
from penstock.ops.telemetry import NoSpans, Spans

SPEC_VERSION = "1.0"
CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"

_encode = msgspec.json.Encoder().encode


class Envelope(msgspec.Struct, frozen=True):
    """A body and its type."""

    content_type: str
    body: bytes


def envelope_of(job: DispatchJob, event: StoredEvent | None) -> Envelope:
    """The body of a job's deliveries: its event, or its own payload as it was given."""
    if event is None:
        return Envelope(job.content_type, job.payload or b"")
    return Envelope(CONTENT_TYPE, cloud_event(event))


def cloud_event(event: StoredEvent) -> bytes:
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


def _data(event: StoredEvent) -> dict[str, object]:
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


JOB_HEADER = "penstock-job"
EVENT_HEADER = "penstock-event"
SUBSCRIPTION_HEADER = "penstock-subscription"
ATTEMPT_HEADER = "penstock-attempt"

MOST_HEADERS = 50
MOST_VALUE_CHARS = 4096

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,100}")
_VALUE = re.compile(r"[ -~]*")
_OURS = ("webhook-", "penstock-", "proxy-")
_OF_THE_CONNECTION = frozenset(
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


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers that somebody wants on deliveries, names in lower case; InvalidArgument names one that cannot be."""
    if len(headers) > MOST_HEADERS:
        raise InvalidArgument(f"there may be {MOST_HEADERS} headers, not {len(headers)}")
    for name, value in headers.items():
        if _NAME.fullmatch(name.lower()) is None:
            raise InvalidArgument(f"{name[:100]!r} cannot be the name of a header")
        if name.lower() in _OF_THE_CONNECTION or name.lower().startswith(_OURS):
            raise InvalidArgument(f"the header {name!r} is set by Penstock: choose another name")
        if _VALUE.fullmatch(value) is None or len(value) > MOST_VALUE_CHARS:
            raise InvalidArgument(
                f"the value of the header {name!r} cannot be sent: use up to {MOST_VALUE_CHARS} ASCII characters"
            )
    return {name.lower(): value for name, value in headers.items()}


_NO_SPANS = NoSpans()


class DeliveryRequest(msgspec.Struct, frozen=True):
    """What is sent, and how long an answer may take."""

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
    """The request for the attempt that has begun; InvalidArgument if the target, a header or a secret cannot be used.

    `webhook-id` is the id of the first job: the same for every attempt and every replay, and another for every
    subscription that gets the event.
    """
    webhook_id = original_id(job.id)
    envelope = envelope_of(job, event)
    now_s = now_ms // SECOND_MS
    secrets = () if subscription is None else subscription.secrets
    signature = sign(secrets, webhook_id, now_s, envelope.body) if secrets else None
    headers = {
        **({} if subscription is None else subscription.headers),
        **job.headers,
        **trace_headers(
            trace_of_job(job, event, spans), span_of_delivery(job), job.headers if event is None else event.attributes
        ),
        "content-type": envelope.content_type,
        "user-agent": "penstock",
        **_names(job),
    }
    if signature is None:
        headers |= {ID_HEADER: webhook_id, TIMESTAMP_HEADER: str(now_s)}
    head = head_with(job.target, tuple((name.lower(), value) for name, value in headers.items()))
    return DeliveryRequest(
        head, envelope.body, signature, DEFAULT_TIMEOUT_S if subscription is None else subscription.timeout_s
    )


def _names(job: DispatchJob) -> dict[str, str]:
    named = {
        JOB_HEADER: job.id,
        EVENT_HEADER: job.event_id,
        SUBSCRIPTION_HEADER: job.subscription_id,
        ATTEMPT_HEADER: str(job.delivery_count),
    }
    return {name: value for name, value in named.items() if value is not None}
