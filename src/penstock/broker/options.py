"""The options of a subscription, and the metadata of topics, subscriptions and snapshots."""

from datetime import UTC, datetime
from enum import Enum
from math import inf

import msgspec

from penstock.broker.attribute_filter import compile_filter
from penstock.broker.errors import InvalidOptions
from penstock.domain.limits import (
    DEFAULT_ACK_DEADLINE_S,
    DEFAULT_RETENTION_S,
    MAX_ACK_DEADLINE_S,
    MIN_ACK_DEADLINE_S,
    SECOND_MS,
    SUBSCRIPTION_MAX_BYTES,
    SUBSCRIPTION_MAX_MESSAGES,
)
from penstock.domain.retry import RetryPolicy
from penstock.engine import Grouping, QueuePolicy


class Overflow(Enum):
    """What happens to a message for a subscription at its capacity."""

    DROP = "drop"
    """The subscription does not get it; the publish succeeds."""
    REJECT = "reject"
    """The publish fails for all subscriptions."""


class FlowControl(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be in flight at once; None means no limit."""

    max_messages: int | None = None
    max_bytes: int | None = None


class DeadLetterPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message goes after its delivery `max_delivery_attempts` failed."""

    dead_letter_topic: str
    max_delivery_attempts: int = 5


class SubscriptionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a subscription, with their defaults (BR-008, BR-022, BROKER-2)."""

    ack_deadline_seconds: int = DEFAULT_ACK_DEADLINE_S
    message_ordering: bool = False
    flow_control: FlowControl = FlowControl()
    retry_policy: RetryPolicy | None = None
    dead_letter_policy: DeadLetterPolicy | None = None
    message_retention_seconds: int = DEFAULT_RETENTION_S
    max_messages: int = SUBSCRIPTION_MAX_MESSAGES
    max_bytes: int = SUBSCRIPTION_MAX_BYTES
    overflow: Overflow = Overflow.DROP
    filter: str = ""
    """Which messages it wants, in the language of `attribute_filter`; empty for all."""
    several_of_a_key: bool = False
    """Whether one receive may take several messages of a key, in order; the key then waits until all are settled."""
    retain_acked: bool = False
    """Whether acked messages are retained like others, so that a seek can deliver them again."""

    def check(self) -> None:
        """Raise InvalidOptions if a value is out of range or has a type that cannot be stored."""
        try:
            msgspec.msgpack.decode(msgspec.msgpack.encode(self), type=SubscriptionOptions)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise InvalidOptions(f"options that cannot be stored: {error}") from error
        if type(self.overflow) is not Overflow:
            raise InvalidOptions(f"overflow must be Overflow.DROP or Overflow.REJECT, got {self.overflow!r}")
        if not MIN_ACK_DEADLINE_S <= self.ack_deadline_seconds <= MAX_ACK_DEADLINE_S:
            raise InvalidOptions(
                f"ack_deadline_seconds must be between {MIN_ACK_DEADLINE_S} and {MAX_ACK_DEADLINE_S}, "
                f"got {self.ack_deadline_seconds}"
            )
        _at_least("message_retention_seconds", self.message_retention_seconds, 1)
        _at_least("max_messages", self.max_messages, 1)
        _at_least("max_bytes", self.max_bytes, 1)
        if self.flow_control.max_messages is not None:
            _at_least("flow_control.max_messages", self.flow_control.max_messages, 1)
        if self.flow_control.max_bytes is not None:
            _at_least("flow_control.max_bytes", self.flow_control.max_bytes, 1)
        if self.dead_letter_policy is not None:
            check_name("dead-letter topic", self.dead_letter_policy.dead_letter_topic)
            _at_least("dead_letter_policy.max_delivery_attempts", self.dead_letter_policy.max_delivery_attempts, 1)
        if self.filter:
            compile_filter(self.filter)
        if self.retry_policy is not None:
            _at_least("retry_policy.minimum_backoff_s", self.retry_policy.minimum_backoff_s, 0)
            _at_least(
                "retry_policy.maximum_backoff_s",
                self.retry_policy.maximum_backoff_s,
                self.retry_policy.minimum_backoff_s,
            )

    @property
    def _grouping(self) -> Grouping:
        if not self.message_ordering:
            return Grouping.NONE
        return Grouping.BATCH if self.several_of_a_key else Grouping.ONE

    def queue_policy(self) -> QueuePolicy:
        """Return the same settings for the queue engine."""
        return QueuePolicy(
            grouping=self._grouping,
            lease_ms=self.ack_deadline_seconds * SECOND_MS,
            retention_ms=self.message_retention_seconds * SECOND_MS,
            retry=self.retry_policy,
            max_deliveries=self.dead_letter_policy.max_delivery_attempts if self.dead_letter_policy else None,
            max_in_flight=self.flow_control.max_messages,
            max_in_flight_bytes=self.flow_control.max_bytes,
        )


class TopicMetadata(msgspec.Struct, frozen=True):
    """A topic."""

    name: str
    created_ms: int
    definition: bytes = b""
    """Data that a protocol server stores with it."""

    @property
    def created(self) -> datetime:
        """When the topic was registered."""
        return datetime.fromtimestamp(self.created_ms / 1000, UTC)


class SubscriptionMetadata(msgspec.Struct, frozen=True):
    """A subscription; `detached` if its topic was removed, whose name it keeps."""

    name: str
    topic: str
    created_ms: int
    options: SubscriptionOptions
    detached: bool = False
    definition: bytes = b""
    """Data that a protocol server stores with it."""

    @property
    def created(self) -> datetime:
        """When the subscription was registered."""
        return datetime.fromtimestamp(self.created_ms / 1000, UTC)


class SnapshotMetadata(msgspec.Struct, frozen=True):
    """A snapshot of a subscription of `topic`."""

    name: str
    topic: str
    created_ms: int
    expires_ms: int
    definition: bytes = b""
    """Data that a protocol server stores with it."""


def check_name(what: str, name: str) -> None:
    """Raise InvalidOptions for a name that is empty or that not every store can save."""
    if not name or not name.isprintable():
        raise InvalidOptions(f"a {what} needs a name of printable characters, got {name!r}")


def check_max_messages(max_messages: int) -> None:
    """Raise InvalidOptions for a limit below 1."""
    _at_least("max_messages", max_messages, 1)


def _at_least(name: str, value: float, minimum: float) -> None:
    if not minimum <= value < inf:
        raise InvalidOptions(f"{name} must be at least {minimum:g}, got {value:g}")
