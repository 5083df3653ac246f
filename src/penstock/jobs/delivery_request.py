"""A job as the request that delivers it: body, headers and signature."""

import msgspec

from penstock.delivery.http.request import RequestHead, head_with
from penstock.domain.event import Event
from penstock.domain.job import DispatchJob
from penstock.domain.limits import SECOND_MS
from penstock.domain.signing import ID_HEADER, TIMESTAMP_HEADER, Signature, sign
from penstock.domain.subscription import DEFAULT_TIMEOUT_S, Subscription
from penstock.jobs.delivery_envelope import envelope_of
from penstock.jobs.delivery_headers import ATTEMPT_HEADER, EVENT_HEADER, JOB_HEADER, SUBSCRIPTION_HEADER
from penstock.jobs.delivery_trace import span_of_delivery, trace_headers, trace_of_job
from penstock.ops.telemetry.spans import NoSpans, Spans

_NO_SPANS = NoSpans()


class DeliveryRequest(msgspec.Struct, frozen=True):
    """What is sent, and how long an answer may take."""

    head: RequestHead
    body: bytes
    signature: Signature | None
    timeout_s: float


def delivery_request(
    job: DispatchJob,
    event: Event | None,
    subscription: Subscription | None,
    now_ms: int,
    spans: Spans = _NO_SPANS,
) -> DeliveryRequest:
    """The request for the attempt that has begun; InvalidArgument if the target, a header or a secret cannot be used.

    `webhook-id` is the job's id: the same for every attempt, and another for every subscription that gets the event.
    """
    envelope = envelope_of(job, event)
    now_s = now_ms // SECOND_MS
    secrets = () if subscription is None else subscription.secrets
    signature = sign(secrets, job.id, now_s, envelope.body) if secrets else None
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
        headers |= {ID_HEADER: job.id, TIMESTAMP_HEADER: str(now_s)}
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
