"""Jobs and attempts in the API."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from penstock.client.types.fields import MOST_AT_ONCE, Cursor, EpochMs, GroupKey, Limit, Moment, Name, Text
from penstock.domain.job_state import DIRECT_TYPE, JobStatus
from penstock.domain.order import DEFAULT_SEQUENCE
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode

_MOST = 2**31 - 1


class NewJobBody(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A job to create. With a subscription, it is delivered like the subscription's events, and target, mode, priority
    and pool default to the subscription's. `payload` is any JSON, `payloadBase64` anything else.
    """

    target: Text | None = None
    subscription_id: Name | None = None
    type: Name = DIRECT_TYPE
    tenant: Name | None = None
    group: Name | None = None
    sequence: Annotated[int, Meta(ge=-_MOST, le=_MOST)] = DEFAULT_SEQUENCE
    mode: DispatchMode | None = None
    high_priority: bool | None = None
    pool: Name | None = None
    payload: Raw | UnsetType = UNSET
    payload_base64: bytes | None = None
    content_type: Name = "application/json"
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    scheduled_for: Moment | None = None
    expires_at: Moment | None = None
    idempotency_key: Name | None = None


class NewJobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to create together: all of them or none."""

    jobs: Annotated[list[NewJobBody], Meta(min_length=1, max_length=MOST_AT_ONCE)]


class JobReceipt(msgspec.Struct, frozen=True, rename="camel"):
    """A job that was created, or the existing one with the same idempotency key."""

    id: str
    is_new: bool


class JobReceipts(msgspec.Struct, frozen=True):
    """Jobs that were created, in the order of the request."""

    jobs: list[JobReceipt]


class JobQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Which jobs to list, and the cursor to continue from.

    `payload`, such as `customer.id=17`, looks at the payloads of up to 5,000 jobs; the cursor continues the search.
    """

    status: JobStatus | None = None
    subscription_id: Name | None = None
    group_key: GroupKey | None = None
    key: GroupKey | None = None
    event_id: Name | None = None
    tenant: Name | None = None
    type: Name | None = None
    created_from_ms: EpochMs | None = None
    created_to_ms: EpochMs | None = None
    payload: Text | None = None
    archived: bool = False
    limit: Limit = 100
    cursor: Cursor | None = None


class JobView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A job. A single job is shown with its own payload; the payload of an event's job is the event."""

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
    high_priority: bool
    pool: str
    target: str
    headers: Mapping[str, str]
    """The names of its own headers; values are never shown."""
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
    key_sequence: int | None = None
    """Its number among the jobs of its subscription and key, which deliveries carry as `penstock-sequence`."""
    payload_json: Raw | UnsetType = msgspec.field(default=UNSET, name="payload")
    payload_bytes: bytes | UnsetType = msgspec.field(default=UNSET, name="payloadBase64")

    @property
    def payload(self) -> object:
        """Return the payload if it is JSON and included; else None."""
        return msgspec.json.decode(self.payload_json) if isinstance(self.payload_json, Raw) else None

    @property
    def payload_base64(self) -> bytes | None:
        """Return the payload if it is not JSON and included; else None."""
        return self.payload_bytes if isinstance(self.payload_bytes, bytes) else None


class JobList(msgspec.Struct, frozen=True):
    """Jobs without payloads, the newest first. The cursor asks for the next page; it is null after the last."""

    jobs: list[JobView]
    cursor: str | None


class AttemptView(msgspec.Struct, frozen=True, rename="camel"):
    """A delivery attempt of a job."""

    number: int
    outcome: AttemptOutcome
    at: datetime
    duration_ms: int
    status_code: int | None
    response: str | None
    error: str | None


class AttemptList(msgspec.Struct, frozen=True):
    """Attempts of a job, the first one first. The cursor asks for the next page; it is null after the last."""

    attempts: list[AttemptView]
    cursor: str | None


class FailureView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A failed delivery of a subscription, and the job it was for; the request's body is the event."""

    job_id: str
    event_id: str | None
    key: str | None
    group_key: str
    type: str
    target: str
    attempt: AttemptView


class FailureList(msgspec.Struct, frozen=True):
    """The newest failed deliveries of a subscription, the newest first."""

    failures: list[FailureView]


class JobCounts(msgspec.Struct, frozen=True):
    """The number of jobs by status, without archived ones."""

    counts: dict[JobStatus, int]


class OldestAges(msgspec.Struct, frozen=True, rename="camel"):
    """How long the oldest items have waited; null if nothing waits.

    `heldAgeS` is the age of due jobs that are blocked by an earlier job of their group or by a paused subscription.
    `ageS` is the age of everything else: events that are to become jobs, and due jobs.
    """

    age_s: float | None
    held_age_s: float | None


class JobIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The jobs to change: all of them or, with an error, none."""

    ids: Annotated[Sequence[Name], Meta(min_length=1, max_length=MOST_AT_ONCE)]


class GroupToRetry(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The key of a group, as its jobs have it."""

    group_key: GroupKey


class Decided(msgspec.Struct, frozen=True):
    """The jobs that were changed, in order."""

    ids: list[str]
