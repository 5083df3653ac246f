"""Per-queue throttles: the six Throttle* attributes and the token buckets that enforce them."""

import re
import threading
from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

import msgspec

from penstock.domain.pace.rate import TokenBucket
from penstock.sqs.errors import ErrorKind, SqsError, invalid_attribute_value

MAX_THROTTLE_VALUE = 100_000
MIN_CAPACITY = 10
"""A full batch must always be servable, also through the fall-through."""

SWEEP_QUEUES = 256

# Short enough that a value's exact arithmetic stays cheap.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,24}(?:\.[0-9]{0,24})?|\.[0-9]{1,24})(?:[eE][+-]?[0-9]{1,2})?")
_ZERO = Decimal(0)


class Action(StrEnum):
    """What a bucket limits; ANY is shared by the actions without a limit of their own."""

    SEND = "Send"
    RECEIVE = "Receive"
    ANY = "*"


# In Python 3.11, reading an enum member takes as long as a call.
SEND = Action.SEND


class Limit(NamedTuple):
    """The bucket that an action is charged to."""

    bucket: Action
    capacity: Decimal
    refill_per_s: Decimal


class ThrottleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a queue; a pair of zeros means no limit."""

    send_capacity: Decimal = _ZERO
    send_refill_per_second: Decimal = _ZERO
    recv_capacity: Decimal = _ZERO
    recv_refill_per_second: Decimal = _ZERO
    default_capacity: Decimal = _ZERO
    default_refill_per_second: Decimal = _ZERO

    @property
    def off(self) -> bool:
        """Return whether nothing is throttled."""
        return not (self.send_capacity or self.recv_capacity or self.default_capacity)

    def limit_of(self, action: Action) -> Limit | None:
        """Return the limit of an action: its own, else the default, else none."""
        if action is Action.SEND and self.send_capacity:
            return Limit(action, self.send_capacity, self.send_refill_per_second)
        if action is Action.RECEIVE and self.recv_capacity:
            return Limit(action, self.recv_capacity, self.recv_refill_per_second)
        if self.default_capacity:
            return Limit(Action.ANY, self.default_capacity, self.default_refill_per_second)
        return None

    def limits(self) -> Iterator[Limit]:
        """Return all limits that are set."""
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
    """Return the settings with the Throttle* attributes of `raw`; InvalidAttributeValue names a wrong one."""
    changes = {THROTTLE_FIELDS[name]: _value(name, text) for name, text in raw.items() if name in THROTTLE_FIELDS}
    if not changes:
        return current
    settings = msgspec.structs.replace(current, **changes)
    for pair in _PAIRS:
        _check_pair(settings, *pair)
    return settings


def throttle_texts(settings: ThrottleSettings) -> dict[str, str]:
    """Return all six attributes as GetQueueAttributes shows them."""
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
    """The tokens in a bucket, for a gauge."""

    queue_name: str
    action: Action
    tokens: float


class QueueThrottle:
    """The limits of one incarnation of a queue, and the up to three buckets that enforce them.

    What a charge reads is kept together here, as reading it is most of what a charge costs.
    """

    __slots__ = ("_buckets", "_evicted_ms", "_holders", "_lock", "_receives_from", "_sends_from", "_settings", "name")

    def __init__(
        self,
        name: str,
        settings: ThrottleSettings,
        lock: threading.Lock,
        holders: dict["QueueThrottle", None],
    ) -> None:
        self.name = name
        self._settings = settings
        self._lock = lock
        self._holders = holders
        self._buckets: dict[Action, TokenBucket] = {}
        # The buckets that the two actions were last charged to, as long as limits and buckets have not changed.
        self._sends_from: TokenBucket | None = None
        self._receives_from: TokenBucket | None = None
        # A bucket created again after an eviction must not be refilled twice for the same time.
        self._evicted_ms = 0

    def __len__(self) -> int:
        return len(self._buckets)

    def charge(self, action: Action, n: int, now_ms: int) -> None:
        """Take the tokens that a request costs, all or none; Throttling says when to retry."""
        with self._lock:
            bucket = self._sends_from if action is SEND else self._receives_from
            if bucket is None:
                bucket = self._find(action, now_ms)
                if bucket is None:
                    return
            if bucket.take(n, now_ms):
                return
            retry_after_s = bucket.retry_after_s(n, now_ms)
        raise SqsError(
            ErrorKind.THROTTLING,
            f"Rate exceeded for queue '{self.name}' action '{action}'",
            retry_after_s=retry_after_s,
        )

    def change(self, settings: ThrottleSettings, now_ms: int) -> None:
        """Put new limits into effect immediately, keeping the tokens there are."""
        with self._lock:
            held = {limit.bucket: limit for limit in self._settings.limits()}
            for limit in settings.limits():
                previous = held.get(limit.bucket, limit)
                if previous != limit:
                    self._bucket(previous, now_ms)
                if limit.bucket in self._buckets:
                    self._bucket(limit, now_ms)
            self._settings = settings
            self._sends_from = self._receives_from = None

    def drop(self) -> None:
        """Drop the buckets of a deleted queue."""
        with self._lock:
            self._keep({})

    def levels(self, now_ms: int) -> list[TokenLevel]:
        """Return the tokens in the buckets."""
        with self._lock:
            return [TokenLevel(self.name, action, bucket.tokens(now_ms)) for action, bucket in self._buckets.items()]

    def evict(self, now_ms: int) -> int:
        """Drop the buckets that are full again, with the lock held; return their number."""
        before = self._buckets
        self._evicted_ms = max(self._evicted_ms, now_ms, *(bucket.updated_ms for bucket in before.values()))
        self._keep({action: bucket for action, bucket in before.items() if not bucket.is_full(now_ms)})
        return len(before) - len(self._buckets)

    def _keep(self, buckets: dict[Action, TokenBucket]) -> None:
        self._buckets = buckets
        self._sends_from = self._receives_from = None
        self._holders.pop(self, None)
        if buckets:
            self._holders[self] = None

    def _find(self, action: Action, now_ms: int) -> TokenBucket | None:
        """Return the bucket that an action is charged to, if any, and keep it for the next charge."""
        limit = self._settings.limit_of(action)
        if limit is None:
            return None
        bucket = self._bucket(limit, now_ms)
        if action is SEND:
            self._sends_from = bucket
        else:
            self._receives_from = bucket
        return bucket

    def _bucket(self, limit: Limit, now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(limit.bucket)
        if bucket is None:
            born_ms = max(now_ms, self._evicted_ms)
            bucket = self._buckets[limit.bucket] = TokenBucket(limit.capacity, limit.refill_per_s, born_ms)
            self._holders[self] = None
        elif bucket.capacity != limit.capacity or bucket.refill_per_s != limit.refill_per_s:
            bucket.reconfigure(limit.capacity, limit.refill_per_s, now_ms)
        return bucket


class Throttles:
    """The throttles of all queues.

    One lock covers finding a bucket and taking from it, so that a dropped bucket never grants tokens.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: dict[QueueThrottle, None] = {}
        """Those that have a bucket, the one checked longest ago first."""

    def __len__(self) -> int:
        return sum(map(len, self._holders))

    def of_queue(self, name: str, settings: ThrottleSettings) -> QueueThrottle:
        """Return the throttle of a queue, without buckets yet."""
        return QueueThrottle(name, settings, self._lock, self._holders)

    def sweep(self, now_ms: int, limit: int = SWEEP_QUEUES) -> int:
        """Check some queues in turn and drop their full buckets; return the number of dropped buckets."""
        with self._lock:
            return sum(throttle.evict(now_ms) for throttle in list(islice(self._holders, limit)))

    def tokens_remaining(self, now_ms: int) -> list[TokenLevel]:
        """Return the tokens in every bucket."""
        return [level for throttle in list(self._holders) for level in throttle.levels(now_ms)]
