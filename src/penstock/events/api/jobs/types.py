"""Converts the API's job requests to jobs, and jobs and attempts to the API's views."""

import msgspec
from msgspec import UNSET, Raw

from penstock.client.types import MAX_DATA_BYTES, AttemptView, JobView, NewJobBody
from penstock.domain.errors import InvalidArgument
from penstock.domain.event import is_json
from penstock.domain.job import Attempt, DispatchJob, NewJob
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL
from penstock.domain.message import NO_ATTRIBUTES
from penstock.domain.order import chosen_sequence, is_high_priority
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription
from penstock.events.api.subscriptions.types import checked_target, masked_headers, unsealed_headers
from penstock.events.fields import epoch_ms_of, moment_of, optional_moment


def new_job(body: NewJobBody, subscription: Subscription | None, job_id: str, now_ms: int) -> NewJob:
    """Return the requested job; InvalidArgument says what is wrong with it."""
    target = body.target or (None if subscription is None else subscription.target)
    if target is None:
        raise InvalidArgument("a job needs a target URL, or a subscriptionId that provides one")
    scheduled_for_ms, expires_at_ms = epoch_ms_of(body.scheduled_for), epoch_ms_of(body.expires_at)
    if expires_at_ms is not None and expires_at_ms <= (scheduled_for_ms or now_ms):
        raise InvalidArgument("expiresAt must be later than the time of the first possible delivery")
    return NewJob(
        id=job_id,
        target=checked_target(target),
        created_at_ms=now_ms,
        type=body.type,
        subscription_id=body.subscription_id,
        tenant=body.tenant or ("" if subscription is None else subscription.tenant),
        group=body.group,
        sequence=body.sequence,
        mode=body.mode or (DispatchMode.BLOCK_ON_ERROR if subscription is None else subscription.mode),
        high_priority=_high_priority(body, subscription),
        pool=body.pool or (DEFAULT_DISPATCH_POOL if subscription is None else subscription.pool_code),
        payload=_payload(body),
        content_type=_ascii(body.content_type),
        headers=unsealed_headers(body.headers) or NO_ATTRIBUTES,
        scheduled_for_ms=scheduled_for_ms,
        expires_at_ms=expires_at_ms,
        idempotency_key=body.idempotency_key,
    )


def _high_priority(body: NewJobBody, subscription: Subscription | None) -> bool:
    if body.high_priority is not None:
        return body.high_priority
    return subscription is not None and subscription.high_priority


def _payload(body: NewJobBody) -> bytes:
    if body.payload is not UNSET and body.payload_base64 is not None:
        raise InvalidArgument("a job has a payload or a payloadBase64, not both")
    payload = bytes(body.payload) if isinstance(body.payload, Raw) else body.payload_base64 or b""
    if len(payload) > MAX_DATA_BYTES:
        raise InvalidArgument(f"a payload may have up to {MAX_DATA_BYTES} bytes, not {len(payload)}")
    return payload


def _ascii(content_type: str) -> str:
    if not content_type.isascii():
        raise InvalidArgument(f"the contentType {content_type!r} is not valid in a header: use ASCII characters")
    return content_type


def job_view(job: DispatchJob) -> JobView:
    """Return the API's view of a job."""
    shown_as_json = job.payload is not None and is_json(job.content_type) and _is_valid(job.payload)
    return JobView(
        id=job.id,
        status=job.status,
        type=job.type,
        tenant=job.tenant,
        event_id=job.event_id,
        subscription_id=job.subscription_id,
        group=job.group,
        group_key=job.group_key,
        sequence=chosen_sequence(job.sequence),
        mode=job.mode,
        high_priority=is_high_priority(job.sequence),
        pool=job.pool,
        target=job.target,
        headers=masked_headers(job.headers),
        content_type=job.content_type,
        idempotency_key=job.idempotency_key,
        attempts_spent=job.attempt_count,
        deliveries=job.delivery_count,
        last_error=job.last_error,
        created_at=moment_of(job.created_at_ms),
        updated_at=moment_of(job.updated_at_ms),
        due_at=moment_of(job.due_at_ms),
        scheduled_for=optional_moment(job.scheduled_for_ms),
        expires_at=optional_moment(job.expires_at_ms),
        finished_at=optional_moment(job.finished_at_ms),
        key_sequence=job.key_sequence,
        payload_json=Raw(job.payload) if job.payload is not None and shown_as_json else UNSET,
        payload_bytes=job.payload if job.payload is not None and not shown_as_json else UNSET,
    )


def attempt_view(attempt: Attempt) -> AttemptView:
    """Return the API's view of an attempt."""
    return AttemptView(
        attempt.number,
        attempt.outcome,
        moment_of(attempt.at_ms),
        attempt.duration_ms,
        attempt.status_code,
        attempt.response,
        attempt.error,
    )


def _is_valid(content: bytes) -> bool:
    try:
        msgspec.json.decode(content, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
