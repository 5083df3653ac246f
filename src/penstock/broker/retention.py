"""Retention queues: queues without receivers, whose messages a subscription can be restarted from.

A topic with a retention, a subscription that retains acked messages, and a snapshot have one each. They are queues of
the topic's stream and share its stored messages. A restarted subscription gets a copy of one of them.
"""

import msgspec

from penstock.broker.options import SubscriptionOptions
from penstock.broker.subscription import (
    BrokerSubscription,
    RetentionConfig,
    decode_retention_config,
    encode_config,
)
from penstock.domain.limits import SECOND_MS
from penstock.engine import (
    Catalog,
    Damage,
    QueuePolicy,
    Store,
    StoredQueue,
    StoredSegment,
    Stream,
    Window,
    decode_segment,
    then,
)

RETENTION_WINDOW = Window(messages=0, size_bytes=0, lookahead=0)
"""Retained messages stay in the store."""

# No topic and no subscription has a name with this character.
_HIDDEN = "\x02"
_SNAPSHOT = f"{_HIDDEN}snapshot "

# The limit of one sweep per queue.
_SWEEP_SEGMENTS = 1000


def is_retention_queue(queue_name: str) -> bool:
    """Return whether a queue is a retention queue, not a subscription."""
    return queue_name.startswith(_HIDDEN)


def topic_queue(topic_name: str) -> str:
    """Return the name of a topic's retention queue."""
    return f"{_HIDDEN}topic {topic_name}"


def subscription_queue(subscription_name: str) -> str:
    """Return the name of a subscription's retention queue."""
    return f"{_HIDDEN}subscription {subscription_name}"


def snapshot_queue(snapshot_name: str) -> str:
    """Return the name of a snapshot's queue."""
    return f"{_SNAPSHOT}{snapshot_name}"


def snapshot_name(queue_name: str) -> str | None:
    """Return the snapshot a queue belongs to, or None."""
    return queue_name.removeprefix(_SNAPSHOT) if queue_name.startswith(_SNAPSHOT) else None


def retention_policy(config: RetentionConfig) -> QueuePolicy:
    """Return the settings of a retention queue."""
    return QueuePolicy(retention_ms=config.retention_s * SECOND_MS)


class Expired(msgspec.Struct, frozen=True):
    """The expired messages of a retention queue: all before a sequence number."""

    before_seq: int
    messages: int = 0
    size_bytes: int = 0

    def with_segment(self, segment: StoredSegment) -> "Expired":
        """Return the sum with one more segment."""
        end_seq = segment.first_seq + segment.count
        return Expired(end_seq, self.messages + segment.count, self.size_bytes + segment.size_bytes)


def expired_in(store: Store, queue: StoredQueue, horizon_ms: int) -> Expired:
    """Return the messages of a retention queue in the store that were sent by `horizon_ms`. Blocks; changes nothing."""
    expired = Expired(queue.start_seq)
    for _ in range(_SWEEP_SEGMENTS):
        segments = store.read(queue.id, expired.before_seq, 1, 1)
        if not segments or _has_newer(queue.stream_id, segments[0], horizon_ms):
            break
        expired = expired.with_segment(segments[0])
    return expired


def _has_newer(stream_id: int, segment: StoredSegment, horizon_ms: int) -> bool:
    messages = decode_segment(stream_id, segment.first_seq, segment.count, segment.payload)
    return any(not isinstance(message, Damage) and message.sent_ms > horizon_ms for message in messages)


class RetentionQueues:
    """Creates and drops the retention queues of topics and subscriptions, in the commit that changes those."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def retain_topic(self, stream: Stream, retention_s: int, now_ms: int) -> None:
        """Create, change or drop the retention queue of a topic, by its retention."""
        name = topic_queue(stream.name)
        if retention_s and name not in self._catalog.queues:
            self.create(stream, name, stream.name, retention_s, now_ms)
        else:
            self._retain_or_drop(name, retention_s)

    def retain_subscription(self, subscription: BrokerSubscription, options: SubscriptionOptions, now_ms: int) -> None:
        """Do the same for a subscription; its queue starts with the messages that are not settled."""
        name = subscription_queue(subscription.name)
        retention_s = options.message_retention_seconds if options.retain_acked else 0
        if retention_s and name not in self._catalog.queues:
            floor_ms = subscription.config.floor_ms
            config = RetentionConfig(now_ms, retention_s, subscription.config.topic, floor_ms=floor_ms)
            policy = retention_policy(config)
            self._catalog.clone_queue(
                subscription.queue, name, policy, now_ms, config=encode_config(config), window=RETENTION_WINDOW
            )
        else:
            self._retain_or_drop(name, retention_s)

    def create(self, stream: Stream, name: str, topic_name: str, retention_s: int, now_ms: int) -> None:
        """Retain what is published to a stream from now on."""
        config = RetentionConfig(now_ms, retention_s, topic_name)
        policy = retention_policy(config)
        pending = self._catalog.create_queue(stream, name, policy, now_ms, config=encode_config(config))
        then(pending, lambda: setattr(self._catalog.queues[name], "window", RETENTION_WINDOW))

    def drop(self, name: str) -> None:
        """Drop a retention queue, if it exists."""
        retained = self._catalog.queues.get(name)
        if retained is not None:
            self._catalog.drop_queue(retained)

    def _retain_or_drop(self, name: str, retention_s: int) -> None:
        retained = self._catalog.queues.get(name)
        if retained is None or not retention_s:
            self.drop(name)
            return
        before = decode_retention_config(retained.config)
        if before.retention_s == retention_s:
            return
        config = msgspec.structs.replace(before, retention_s=retention_s)
        self._catalog.configure_queue(retained, retention_policy(config), encode_config(config))
