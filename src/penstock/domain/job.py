"""A dispatch job is one delivery owed to one target; an attempt is one try of it with its outcome."""

from collections.abc import Mapping

import msgspec

from penstock.domain.ids import COPY_JOINT
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL, DIRECT_TYPE, JobStatus
from penstock.domain.message import NO_ATTRIBUTES
from penstock.domain.order import DEFAULT_SEQUENCE, LaneKey, group_key, is_ordered, lane_of
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode

RESPONSE_KEPT_CHARACTERS = 2000

AttemptPlace = tuple[int, int]
"""An attempt's number and time: the sort key of a job's attempts."""

BEFORE_ALL_ATTEMPTS: AttemptPlace = (0, 0)


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to create. The payload is the event's, or its own if it has no event."""

    id: str
    target: str
    created_at_ms: int
    type: str = DIRECT_TYPE
    event_id: str | None = None
    subscription_id: str | None = None
    tenant: str = ""
    group: str | None = None
    sequence: int = DEFAULT_SEQUENCE
    mode: DispatchMode = DispatchMode.BLOCK_ON_ERROR
    high_priority: bool = False
    """Whether it goes before the regular jobs of its group."""
    pool: str = DEFAULT_DISPATCH_POOL
    payload: bytes | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = NO_ATTRIBUTES
    scheduled_for_ms: int | None = None
    expires_at_ms: int | None = None
    idempotency_key: str | None = None
    key_sequence: int | None = None
    """The number that a copy has from its original; other jobs get theirs when they are stored."""

    @property
    def group_key(self) -> str:
        """The group it is ordered in, within its subscription, or within its type if it has none."""
        return group_key(self.subscription_id or self.type, self.group)

    @property
    def is_numbered(self) -> bool:
        """Whether it gets a number when it is stored: of an event, with a key or in order, and not a copy."""
        if self.event_id is None or self.subscription_id is None or COPY_JOINT in self.id:
            return False
        return bool(self.group) or is_ordered(self.mode)

    @property
    def due_at_ms(self) -> int:
        """When it may be published."""
        return self.created_at_ms if self.scheduled_for_ms is None else self.scheduled_for_ms


class CreatedJob(msgspec.Struct, frozen=True):
    """The id of a new job, or of the existing job with the same idempotency key."""

    id: str
    is_new: bool


class DispatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """A stored job."""

    id: str
    tenant: str
    type: str
    event_id: str | None
    subscription_id: str | None
    group: str | None
    group_key: str
    sequence: int
    """With the priority in it (`domain.order.tiered_sequence`)."""
    mode: DispatchMode
    status: JobStatus
    target: str
    pool: str
    payload: bytes | None
    content_type: str
    headers: Mapping[str, str]
    idempotency_key: str | None
    scheduled_for_ms: int | None
    due_at_ms: int
    expires_at_ms: int | None
    attempt_count: int
    """Attempts spent of the retry schedule."""
    delivery_count: int
    """Deliveries begun, deferred ones included; the number of the last attempt."""
    publish_round: int
    """How often it went back to be published again."""
    owner: str | None
    lease_until_ms: int | None
    last_error: str | None
    created_at_ms: int
    updated_at_ms: int
    finished_at_ms: int | None
    key_sequence: int | None = None
    """Its number among the jobs of its subscription and key, from 1; None if it has no number (EVENT-FANOUT-8)."""

    @property
    def dedup_id(self) -> str:
        """The queue's deduplication id (SCHED-CLAIM-2): the same until the job is published again."""
        return f"{self.id}:{self.publish_round}"


class ClaimedJob(msgspec.Struct, frozen=True, gc=False):
    """A job of a claimed lane, with the fields its pointer needs."""

    id: str
    group_key: str
    mode: DispatchMode
    pool: str
    publish_round: int
    due_at_ms: int
    high_priority: bool = False

    @property
    def lane(self) -> LaneKey:
        """The lane it waits in."""
        return lane_of(self.group_key, self.mode)

    @property
    def dedup_id(self) -> str:
        """The queue's deduplication id (SCHED-CLAIM-2)."""
        return f"{self.id}:{self.publish_round}"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery; `number` counts from 1. A deferred one (`ack: false`, 429) uses none of the retry schedule."""

    number: int
    outcome: AttemptOutcome
    at_ms: int
    duration_ms: int
    status_code: int | None = None
    response: str | None = None
    error: str | None = None

    @property
    def spends(self) -> bool:
        """Whether it counts against the retry schedule."""
        return self.outcome is not AttemptOutcome.DEFERRED


def kept_response(text: str) -> str:
    """Return the part of a response that is stored with the attempt."""
    # Text columns of both databases cannot hold a NUL.
    return text[:RESPONSE_KEPT_CHARACTERS].replace("\0", "\N{REPLACEMENT CHARACTER}")
