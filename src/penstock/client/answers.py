"""What the API answers, as values."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from penstock.domain.job_state import JobStatus
from penstock.domain.matching import Condition
from penstock.domain.pointer import DispatchMode


class Receipt(msgspec.Struct, frozen=True, rename="camel"):
    """An event that is kept: the id that Penstock gave it, and whether it was told for the first time."""

    id: str
    is_new: bool


class Receipts(msgspec.Struct, frozen=True):
    """Receipts in the order of their events."""

    events: list[Receipt]


class Subscription(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A subscription, without its secrets; `secrets` is how many sign its deliveries."""

    id: str
    name: str
    pattern: str
    target: str
    filter: tuple[Condition, ...]
    pool: str
    mode: DispatchMode
    retry_delays_s: tuple[float, ...]
    timeout_s: float
    headers: Mapping[str, str]
    paused: bool
    dead_letter_topic: str | None
    tenant: str
    secrets: int


class NewSubscription(msgspec.Struct, frozen=True):
    """A subscription that was made, and the secret that signs its deliveries: it is shown this once."""

    subscription: Subscription
    secret: str


class Subscriptions(msgspec.Struct, frozen=True):
    """Subscriptions, the oldest first; the cursor asks for the next page, None after the last."""

    subscriptions: list[Subscription]
    cursor: str | None


class RemovedSubscription(msgspec.Struct, frozen=True, rename="camel"):
    """A subscription that is no more, and how many of its jobs were cancelled with it."""

    id: str
    cancelled_jobs: int


class Job(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One delivery to be made. A payload is there only when one job is asked for, and it is not an event's."""

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
    payload: object = None
    payload_base64: bytes | None = None


class JobPage(msgspec.Struct, frozen=True):
    """Jobs, the newest first; the cursor asks for the next ones, None after the last."""

    jobs: list[Job]
    cursor: str | None


class Attempt(msgspec.Struct, frozen=True, rename="camel"):
    """One delivery of a job; `outcome` is DELIVERED, FAILED, REFUSED or DEFERRED."""

    number: int
    outcome: str
    at: datetime
    duration_ms: int
    status_code: int | None
    response: str | None
    error: str | None


class Attempts(msgspec.Struct, frozen=True):
    """Deliveries of a job, the first one first; the cursor asks for the next page, None after the last."""

    attempts: list[Attempt]
    cursor: str | None


class DecidedJobs(msgspec.Struct, frozen=True):
    """The jobs something was done to."""

    ids: list[str]


class Pool(msgspec.Struct, frozen=True, rename="camel"):
    """So many deliveries at once, and so many a minute (None: as many as there are)."""

    code: str
    concurrency: int
    rate_limit_per_minute: int | None


class Pools(msgspec.Struct, frozen=True):
    """Pools, by code; the cursor asks for the next page, None after the last."""

    pools: list[Pool]
    cursor: str | None
