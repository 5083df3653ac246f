"""What the router shows of itself: the values behind /monitoring and /metrics."""

import msgspec


class PoolView(msgspec.Struct, frozen=True, rename="camel"):
    """A pool at this moment, and what it has done since it started."""

    code: str
    concurrency: int
    rate_limit_per_minute: int | None
    queue_capacity: int
    queued: int
    active: int
    backing_off: int
    available_permits: int
    groups: int
    rate_limited: bool
    draining: bool
    oldest_waiting_s: float
    succeeded: int
    failed: int
    transient: int
    deferred: int
    rate_limit_waits: int
    submitted: int
    success_rate: float
    average_processing_ms: float


class GroupView(msgspec.Struct, frozen=True, rename="camel"):
    """A group of a pool: its queue, and how it does."""

    pool: str
    group: str
    queued: int
    active: bool
    oldest_waiting_s: float


class QueueView(msgspec.Struct, frozen=True, rename="camel"):
    """A consumed queue."""

    name: str
    uri: str
    connections: int
    polls: int
    received: int
    acked: int
    nacked: int
    malformed: int
    in_flight: int
    paused: bool
    healthy: bool
    last_poll_age_s: float | None
    draining: bool


class InFlightView(msgspec.Struct, frozen=True, rename="camel"):
    """A message that is tracked."""

    message_id: str
    broker_message_id: str
    queue: str
    pool_code: str
    message_group_id: str
    mediation_target: str
    state: str
    attempt: int
    tracked_at_ms: int
    elapsed_ms: int
