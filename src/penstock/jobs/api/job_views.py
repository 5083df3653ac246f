"""Jobs and attempts as the API shows them."""

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, UnsetType

from penstock.delivery.webhook.request import is_json
from penstock.domain.job import Attempt, AttemptOutcome, DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.pointer import DispatchMode
from penstock.jobs.api.fields import moment_of, optional_moment


class JobView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A job. Its own payload is shown when one job is asked for; that of an event is the event's."""

    id: str
    status: JobStatus
    type: str
    tenant: str
    event_id: str | None
    subscription_id: str | None
    group: str | None
    group_key: str
    sequence: int
    mode: DispatchMode
    pool: str
    target: str
    headers: Mapping[str, str]
    content_type: str
    idempotency_key: str | None
    attempts_spent: int
    deliveries: int
    last_error: str | None
    created_at: datetime
    updated_at: datetime
    due_at: datetime
    scheduled_for: datetime | None
    expires_at: datetime | None
    finished_at: datetime | None
    payload: Raw | UnsetType = UNSET
    payload_base64: bytes | UnsetType = UNSET


class AttemptView(msgspec.Struct, frozen=True, rename="camel"):
    """One delivery of a job."""

    number: int
    outcome: AttemptOutcome
    at: datetime
    duration_ms: int
    status_code: int | None
    response: str | None
    error: str | None


def job_view(job: DispatchJob) -> JobView:
    """A job as it is shown."""
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
        sequence=job.sequence,
        mode=job.mode,
        pool=job.pool,
        target=job.target,
        headers=dict(job.headers),
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
        payload=Raw(job.payload) if job.payload is not None and shown_as_json else UNSET,
        payload_base64=job.payload if job.payload is not None and not shown_as_json else UNSET,
    )


def attempt_view(attempt: Attempt) -> AttemptView:
    """An attempt as it is shown."""
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
