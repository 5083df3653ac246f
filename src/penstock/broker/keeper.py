"""Keepers: queues nobody receives from, that hold messages which may be wanted again.

A topic with a retention, a subscription that retains what was acked, and a snapshot have one each. Being queues of
the topic's stream they share its stored messages, and what a subscription restarts from is a copy of one of them.
"""

import msgspec

from penstock.broker.options import SubscriptionOptions
from penstock.broker.subscription import (
    BrokerSubscription,
    KeeperConfig,
    decode_keeper_config,
    decode_topic_config,
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

KEEPER_WINDOW = Window(messages=0, size_bytes=0, lookahead=0)
"""What a keeper holds stays in the store."""

# No topic and no subscription has a name with such a character.
_HIDDEN = "\x02"
_SNAPSHOT = f"{_HIDDEN}snapshot "

# So much one sweep may look at, so that it ends.
_SWEEP_SEGMENTS = 1000


def is_keeper(queue_name: str) -> bool:
    """Whether a queue is no subscription."""
    return queue_name.startswith(_HIDDEN)


def topic_keeper(topic_name: str) -> str:
    """The queue that keeps what a topic retains."""
    return f"{_HIDDEN}topic {topic_name}"


def subscription_keeper(subscription_name: str) -> str:
    """The queue that keeps what a subscription retains."""
    return f"{_HIDDEN}subscription {subscription_name}"


def snapshot_keeper(snapshot_name: str) -> str:
    """The queue that keeps what a snapshot holds."""
    return f"{_SNAPSHOT}{snapshot_name}"


def snapshot_name(queue_name: str) -> str | None:
    """The snapshot a queue belongs to."""
    return queue_name.removeprefix(_SNAPSHOT) if queue_name.startswith(_SNAPSHOT) else None


def keeper_policy(config: KeeperConfig) -> QueuePolicy:
    """How a keeper behaves."""
    return QueuePolicy(retention_ms=config.retention_s * SECOND_MS)


class Expired(msgspec.Struct, frozen=True):
    """What a keeper has kept for long enough: all before a sequence number, so many messages."""

    before_seq: int
    messages: int = 0
    size_bytes: int = 0

    def with_segment(self, segment: StoredSegment) -> "Expired":
        """With one more segment."""
        end_seq = segment.first_seq + segment.count
        return Expired(end_seq, self.messages + segment.count, self.size_bytes + segment.size_bytes)


def expired_in(store: Store, queue: StoredQueue, horizon_ms: int) -> Expired:
    """What of a keeper was sent by `horizon_ms` and is in the store only. Blocks; changes nothing."""
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


class Keepers:
    """Makes and drops the keepers of topics and subscriptions, with the commit that changes these."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def keep_topic(self, stream: Stream, now_ms: int) -> None:
        """See to it that what a topic retains is kept, and nothing when it retains nothing."""
        retention_s = decode_topic_config(stream.config).retention_s
        name = topic_keeper(stream.name)
        if retention_s and name not in self._catalog.queues:
            self.keep(stream, name, stream.name, retention_s, now_ms)
        else:
            self._retain_or_drop(name, retention_s)

    def keep_subscription(self, subscription: BrokerSubscription, options: SubscriptionOptions, now_ms: int) -> None:
        """The same for what a subscription retains, beginning with what it has not settled."""
        name = subscription_keeper(subscription.name)
        retention_s = options.message_retention_seconds if options.retain_acked else 0
        if retention_s and name not in self._catalog.queues:
            floor_ms = subscription.config.floor_ms
            config = KeeperConfig(now_ms, retention_s, subscription.config.topic, floor_ms=floor_ms)
            policy = keeper_policy(config)
            self._catalog.clone_queue(
                subscription.queue, name, policy, now_ms, config=encode_config(config), window=KEEPER_WINDOW
            )
        else:
            self._retain_or_drop(name, retention_s)

    def keep(self, stream: Stream, name: str, topic_name: str, retention_s: int, now_ms: int) -> None:
        """Keep what is published to a stream from now on."""
        config = KeeperConfig(now_ms, retention_s, topic_name)
        policy = keeper_policy(config)
        pending = self._catalog.create_queue(stream, name, policy, now_ms, config=encode_config(config))
        then(pending, lambda: setattr(self._catalog.queues[name], "window", KEEPER_WINDOW))

    def drop(self, name: str) -> None:
        """Keep nothing any more; one that does not exist is fine."""
        keeper = self._catalog.queues.get(name)
        if keeper is not None:
            self._catalog.drop_queue(keeper)

    def _retain_or_drop(self, name: str, retention_s: int) -> None:
        keeper = self._catalog.queues.get(name)
        if keeper is None or not retention_s:
            self.drop(name)
            return
        before = decode_keeper_config(keeper.config)
        if before.retention_s == retention_s:
            return
        config = msgspec.structs.replace(before, retention_s=retention_s)
        self._catalog.configure_queue(keeper, keeper_policy(config), encode_config(config))
