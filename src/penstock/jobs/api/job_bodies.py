"""Jobs as callers ask for them, and as they are made."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from penstock.delivery.webhook.request import checked_headers
from penstock.domain.errors import InvalidArgument
from penstock.domain.job import DIRECT_TYPE, NewJob
from penstock.domain.message import NO_ATTRIBUTES
from penstock.domain.order import DEFAULT_SEQUENCE
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import DEFAULT_DISPATCH_POOL, Subscription
from penstock.jobs.api.fields import MAX_DATA_BYTES, Moment, Name, Text, epoch_ms_of
from penstock.jobs.api.targets import checked_target

_MOST = 2**31 - 1


class NewJobBody(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A job to be made. One that names a subscription is delivered as its events are; target, mode and pool are
    the subscription's unless given. `payload` is any JSON, `payloadBase64` anything else.
    """

    target: Text | None = None
    subscription_id: Name | None = None
    type: Name = DIRECT_TYPE
    tenant: Name | None = None
    group: Name | None = None
    sequence: Annotated[int, Meta(ge=-_MOST, le=_MOST)] = DEFAULT_SEQUENCE
    mode: DispatchMode | None = None
    pool: Name | None = None
    payload: Raw | UnsetType = UNSET
    payload_base64: bytes | None = None
    content_type: Name = "application/json"
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    scheduled_for: Moment | None = None
    expires_at: Moment | None = None
    idempotency_key: Name | None = None


def new_job(body: NewJobBody, subscription: Subscription | None, job_id: str, now_ms: int) -> NewJob:
    """The job that was asked for; InvalidArgument says what is wrong with it."""
    target = body.target or (None if subscription is None else subscription.target)
    if target is None:
        raise InvalidArgument("a job needs a target URL, or a subscriptionId whose target it gets")
    scheduled_for_ms, expires_at_ms = epoch_ms_of(body.scheduled_for), epoch_ms_of(body.expires_at)
    if expires_at_ms is not None and expires_at_ms <= (scheduled_for_ms or now_ms):
        raise InvalidArgument("expiresAt is not after the moment at which the job could first be delivered")
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
        pool=body.pool or (DEFAULT_DISPATCH_POOL if subscription is None else subscription.pool),
        payload=_payload(body),
        content_type=_ascii(body.content_type),
        headers=checked_headers(body.headers) or NO_ATTRIBUTES,
        scheduled_for_ms=scheduled_for_ms,
        expires_at_ms=expires_at_ms,
        idempotency_key=body.idempotency_key,
    )


def _payload(body: NewJobBody) -> bytes:
    if body.payload is not UNSET and body.payload_base64 is not None:
        raise InvalidArgument("a job has a payload or a payloadBase64, not both")
    payload = bytes(body.payload) if isinstance(body.payload, Raw) else body.payload_base64 or b""
    if len(payload) > MAX_DATA_BYTES:
        raise InvalidArgument(f"a payload may have {MAX_DATA_BYTES} bytes, not {len(payload)}")
    return payload


def _ascii(content_type: str) -> str:
    if not content_type.isascii():
        raise InvalidArgument(f"the contentType {content_type!r} cannot stand in a header: use ASCII characters")
    return content_type
