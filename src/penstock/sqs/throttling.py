"""Per-queue throttling: the six Throttle* attributes, and the buckets that enforce them."""

import re
import threading
from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

import msgspec

from penstock.core.throttle import TokenBucket
from penstock.sqs.errors import ErrorKind, SqsError, invalid_attribute_value

MAX_THROTTLE_VALUE = 100_000
MIN_CAPACITY = 10
"""A full batch must always be servable, also through the fall-through."""

SWEEP_QUEUES = 256

# Short enough that a value's exact arithmetic stays cheap.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,24}(?:\.[0-9]{0,24})?|\.[0-9]{1,24})(?:[eE][+-]?[0-9]{1,2})?")
_ZERO = Decimal(0)


class Action(StrEnum):
    """What a bucket is for; ANY is shared by the actions that have no limit of their own."""

    SEND = "Send"
    RECEIVE = "Receive"
    ANY = "*"


class Limit(NamedTuple):
    """The bucket that an action is charged to."""

    bucket: Action
    capacity: Decimal
    refill_per_s: Decimal


class ThrottleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one queue; a pair of zeros is no limit."""

    send_capacity: Decimal = _ZERO
    send_refill_per_second: Decimal = _ZERO
    recv_capacity: Decimal = _ZERO
    recv_refill_per_second: Decimal = _ZERO
    default_capacity: Decimal = _ZERO
    default_refill_per_second: Decimal = _ZERO

    @property
    def off(self) -> bool:
        """Whether nothing is throttled."""
        return not (self.send_capacity or self.recv_capacity or self.default_capacity)

    def limit_of(self, action: Action) -> Limit | None:
        """The limit an action falls under: its own, else the default, else none."""
        if action is Action.SEND and self.send_capacity:
            return Limit(action, self.send_capacity, self.send_refill_per_second)
        if action is Action.RECEIVE and self.recv_capacity:
            return Limit(action, self.recv_capacity, self.recv_refill_per_second)
        if self.default_capacity:
            return Limit(Action.ANY, self.default_capacity, self.default_refill_per_second)
        return None

    def limits(self) -> Iterator[Limit]:
        """All limits that are set."""
        for action in Action:
            limit = self.limit_of(action)
            if limit is not None and limit.bucket is action:
                yield limit


THROTTLE_FIELDS = {
    "ThrottleSendCapacity": "send_capacity",
    "ThrottleSendRefillPerSecond": "send_refill_per_second",
    "ThrottleRecvCapacity": "recv_capacity",
    "ThrottleRecvRefillPerSecond": "recv_refill_per_second",
    "ThrottleDefaultCapacity": "default_capacity",
    "ThrottleDefaultRefillPerSecond": "default_refill_per_second",
}
_PAIRS = [(f"Throttle{verb}Capacity", f"Throttle{verb}RefillPerSecond") for verb in ("Send", "Recv", "Default")]


def with_throttles(current: ThrottleSettings, raw: Mapping[str, str]) -> ThrottleSettings:
    """The settings after the Throttle* attributes among `raw` are set; InvalidAttributeValue names the one at fault."""
    changes = {THROTTLE_FIELDS[name]: _value(name, text) for name, text in raw.items() if name in THROTTLE_FIELDS}
    if not changes:
        return current
    settings = msgspec.structs.replace(current, **changes)
    for pair in _PAIRS:
        _check_pair(settings, *pair)
    return settings


def throttle_texts(settings: ThrottleSettings) -> dict[str, str]:
    """All six attributes as GetQueueAttributes shows them."""
    return {name: _text(getattr(settings, field)) for name, field in THROTTLE_FIELDS.items()}


def _value(name: str, text: str) -> Decimal:
    if _DECIMAL.fullmatch(text) is None:
        raise _refused(name, f"{text[:64]!r} is not a decimal number")
    value = Decimal(text)
    if not 0 <= value <= MAX_THROTTLE_VALUE:
        raise _refused(name, f"{text} is not from 0 to {MAX_THROTTLE_VALUE}")
    return value or _ZERO


def _text(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _check_pair(settings: ThrottleSettings, capacity_name: str, refill_name: str) -> None:
    capacity: Decimal = getattr(settings, THROTTLE_FIELDS[capacity_name])
    refill: Decimal = getattr(settings, THROTTLE_FIELDS[refill_name])
    if not capacity and not refill:
        return
    if not capacity:
        raise _refused(capacity_name, f"it must be positive when {refill_name} is")
    if not refill:
        raise _refused(refill_name, f"it must be positive when {capacity_name} is")
    if capacity < refill:
        raise _refused(capacity_name, f"{_text(capacity)} is less than {refill_name}, {_text(refill)}")
    if capacity < MIN_CAPACITY:
        raise _refused(capacity_name, f"{_text(capacity)} is less than {MIN_CAPACITY}, which a full batch takes")


def _refused(name: str, reason: str) -> SqsError:
    return invalid_attribute_value(f"Invalid value for the parameter {name}. Reason: {reason}.")


class TokenLevel(NamedTuple):
    """What a bucket holds, for a gauge."""

    queue_name: str
    action: Action
    tokens: float


class _QueueBuckets:
    """The buckets of one incarnation of a queue."""

    __slots__ = ("buckets", "charged", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.buckets: dict[Action, TokenBucket] = {}
        self.charged: dict[Action, tuple[ThrottleSettings, TokenBucket]] = {}
        """The bucket an action was charged to last, while settings and buckets are what they were then."""


class Throttles:
    """The buckets of all queues: at most three for each queue that has limits.

    One lock spans finding a bucket and taking from it, so a bucket that has left the map never grants.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[int, _QueueBuckets] = {}
        # Of all buckets: one that is evicted and made anew must not see a time again that it was refilled for.
        self._latest_ms = 0

    def __len__(self) -> int:
        return sum(len(queue.buckets) for queue in self._queues.values())

    def charge(
        self, queue_id: int, queue_name: str, settings: ThrottleSettings, action: Action, n: int, now_ms: int
    ) -> None:
        """Take the tokens a request costs, all or none; Throttling says when to come again."""
        if n <= 0:
            return
        with self._lock:
            latest_ms = self._latest_ms if now_ms <= self._latest_ms else self._advance(now_ms)
            queue = self._queues.get(queue_id)
            charged = None if queue is None else queue.charged.get(action)
            if charged is not None and charged[0] is settings:
                bucket: TokenBucket | None = charged[1]
            else:
                bucket = self._bucket_of(queue_id, queue_name, settings, action, latest_ms)
            if bucket is None or bucket.take(n, latest_ms):
                return
            retry_after_s = bucket.retry_after_s(n, now_ms)
        raise SqsError(
            ErrorKind.THROTTLING,
            f"Rate exceeded for queue '{queue_name}' action '{action}'",
            retry_after_s=retry_after_s,
        )

    def change(
        self, queue_id: int, queue_name: str, before: ThrottleSettings, after: ThrottleSettings, now_ms: int
    ) -> None:
        """Put other limits in force at once.

        A charge notices a change by itself; this is for a bucket that was idle until now, which would otherwise be
        born full under the new limit and so hand out a burst.
        """
        held = {limit.bucket: limit for limit in before.limits()}
        with self._lock:
            latest_ms = self._advance(now_ms)
            for limit in after.limits():
                previous = held.get(limit.bucket, limit)
                if previous != limit:
                    self._bucket(queue_id, queue_name, previous, latest_ms)
                if queue_id in self._queues and limit.bucket in self._queues[queue_id].buckets:
                    self._bucket(queue_id, queue_name, limit, latest_ms)

    def drop(self, queue_id: int) -> None:
        """Forget a queue that was deleted."""
        with self._lock:
            self._queues.pop(queue_id, None)

    def sweep(self, now_ms: int, limit: int = SWEEP_QUEUES) -> int:
        """Look at some queues, in turn, and drop their buckets that are full again; says how many were dropped."""
        dropped = 0
        with self._lock:
            latest_ms = self._advance(now_ms)
            for queue_id in list(islice(self._queues, limit)):
                queue = self._queues.pop(queue_id)
                kept = {action: bucket for action, bucket in queue.buckets.items() if not bucket.is_full(latest_ms)}
                dropped += len(queue.buckets) - len(kept)
                queue.buckets = kept
                queue.charged.clear()
                if kept:
                    self._queues[queue_id] = queue
        return dropped

    def tokens_remaining(self, now_ms: int) -> list[TokenLevel]:
        """What every bucket holds."""
        with self._lock:
            latest_ms = self._advance(now_ms)
            return [
                TokenLevel(queue.name, action, bucket.tokens(latest_ms))
                for queue in self._queues.values()
                for action, bucket in queue.buckets.items()
            ]

    def _bucket_of(
        self, queue_id: int, queue_name: str, settings: ThrottleSettings, action: Action, now_ms: int
    ) -> TokenBucket | None:
        """The bucket that an action is charged to, if any; the next charge finds it at once."""
        limit = settings.limit_of(action)
        if limit is None:
            return None
        bucket = self._bucket(queue_id, queue_name, limit, now_ms)
        self._queues[queue_id].charged[action] = (settings, bucket)
        return bucket

    def _advance(self, now_ms: int) -> int:
        if now_ms > self._latest_ms:
            self._latest_ms = now_ms
        return self._latest_ms

    def _bucket(self, queue_id: int, queue_name: str, limit: Limit, now_ms: int) -> TokenBucket:
        queue = self._queues.get(queue_id)
        if queue is None:
            queue = self._queues[queue_id] = _QueueBuckets(queue_name)
        bucket = queue.buckets.get(limit.bucket)
        if bucket is None:
            bucket = queue.buckets[limit.bucket] = TokenBucket(limit.capacity, limit.refill_per_s, now_ms)
        elif bucket.capacity != limit.capacity or bucket.refill_per_s != limit.refill_per_s:
            bucket.reconfigure(limit.capacity, limit.refill_per_s, now_ms)
            queue.charged.clear()
        return bucket
