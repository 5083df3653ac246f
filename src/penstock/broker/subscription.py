"""A subscription: its queue, its options, and the ack ids of its deliveries."""

from collections.abc import Callable, Sequence

import msgspec

from penstock.broker.attribute_filter import compile_filter
from penstock.broker.errors import InvalidAckId
from penstock.broker.message import InternalMessage
from penstock.broker.options import SubscriptionMetadata, SubscriptionOptions
from penstock.domain.limits import MINUTE_MS
from penstock.domain.message import Message
from penstock.engine import Entry, StoredQueue


class TopicConfig(msgspec.Struct, frozen=True):
    """The stored configuration of a topic; a removed one is kept while subscriptions still name it."""

    created_ms: int
    removed: bool = False
    retention_s: int = 0
    """How long messages are retained for subscriptions that restart; 0 for not at all."""
    definition: bytes = b""


class SubscriptionConfig(msgspec.Struct, frozen=True):
    """The stored configuration of a subscription."""

    topic: str
    created_ms: int
    options: SubscriptionOptions
    detached: bool = False
    floor_ms: int = 0
    """Messages published before this time are settled, by a seek."""
    definition: bytes = b""


class RetentionConfig(msgspec.Struct, frozen=True):
    """The stored configuration of a retention queue."""

    created_ms: int
    retention_s: int
    topic: str
    definition: bytes = b""
    expires_ms: int = 0
    """When a snapshot expires."""
    floor_ms: int = 0
    """Messages published before this time were settled when the queue was created, but may still be in the store."""


encode_config = msgspec.msgpack.Encoder().encode
decode_topic_config = msgspec.msgpack.Decoder(TopicConfig).decode
decode_retention_config = msgspec.msgpack.Decoder(RetentionConfig).decode
decode_subscription_config = msgspec.msgpack.Decoder(SubscriptionConfig).decode


class BrokerSubscription:
    """One subscription of the broker."""

    __slots__ = ("_warned_ms", "active_ms", "config", "dropped", "queue", "tag", "unwanted")

    def __init__(self, queue: StoredQueue, config: SubscriptionConfig, tag: str) -> None:
        self.queue = queue
        self.config = config
        self.tag = tag
        """Marks this subscription's ack ids; it changes with each restart, because lease ids then start again."""
        self.unwanted = unwanted_by(config)
        self.active_ms = 0
        """When a receiver last asked for its messages."""
        self.dropped = 0
        self._warned_ms = -MINUTE_MS

    @property
    def name(self) -> str:
        """The subscription's name."""
        return self.queue.name

    def metadata(self) -> SubscriptionMetadata:
        """Return the metadata for callers."""
        config = self.config
        return SubscriptionMetadata(
            self.name, config.topic, config.created_ms, config.options, config.detached, config.definition
        )

    def pulled(self, entry: Entry) -> InternalMessage:
        """Return a leased message as its receiver sees it."""
        message = entry.message
        return InternalMessage(
            message.body,
            message.attributes,  # type: ignore[arg-type]  # the broker only ever stores string values
            message.group or None,
            message.id,
            message.sent_ms,
            entry.receive_count,
            ack_id_of(entry, self.tag),
        )

    def unwanted_bits(self, messages: Sequence[Message]) -> int:
        """Return a bit for each message that this subscription does not want."""
        unwanted = self.unwanted
        if unwanted is None:
            return 0
        return sum(1 << index for index, message in enumerate(messages) if unwanted(message))

    def has_capacity(self, messages: int, size_bytes: int) -> bool:
        """Return whether more messages fit within the subscription's capacity."""
        options = self.config.options
        queue = self.queue
        return queue.total + messages <= options.max_messages and queue.total_bytes + size_bytes <= options.max_bytes

    def count_drops(self, dropped: int, now_ms: int) -> bool:
        """Count messages dropped at capacity; return whether to warn, at most once a minute."""
        self.dropped += dropped
        if now_ms - self._warned_ms < MINUTE_MS:
            return False
        self._warned_ms = now_ms
        return True


def unwanted_by(config: SubscriptionConfig) -> Callable[[Message], bool] | None:
    """Return a predicate for messages that a subscription does not get, or None if it gets all."""
    floor_ms = config.floor_ms
    if not config.options.filter:
        return (lambda message: message.sent_ms < floor_ms) if floor_ms else None
    wanted = compile_filter(config.options.filter)
    return lambda message: message.sent_ms < floor_ms or not wanted(message.attributes)


def ack_id_of(entry: Entry, tag: str) -> str:
    """Return the id that acknowledges a delivery, unique per message, delivery and subscription."""
    return f"{entry.message.id}-{entry.receive_count}-{entry.lease_id}-{tag}"


def parse_ack_id(ack_id: str) -> tuple[int, str]:
    """Return the lease id and the subscription's tag in an ack id."""
    try:
        _, _, lease_id, tag = ack_id.split("-")
        return int(lease_id), tag
    except ValueError:
        raise InvalidAckId(ack_id) from None
