"""The broker's rules: topics, subscriptions, publish, pull, settle. Nothing here waits or reads a clock.

Each operation that must be durable returns a Pending; the blocking and the asyncio front commit it each in their way.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import msgspec

from penstock.broker.dead_letter import dead_letter_copy
from penstock.broker.errors import (
    InvalidAckId,
    InvalidOptions,
    SubscriptionExists,
    SubscriptionFull,
    SubscriptionNotFound,
    TopicNotFound,
)
from penstock.broker.message import InternalMessage
from penstock.broker.options import Overflow, SubscriptionMetadata, SubscriptionOptions, TopicMetadata, check_name
from penstock.broker.subscription import (
    Subscription,
    SubscriptionConfig,
    TopicConfig,
    ack_id_of,
    decode_subscription_config,
    decode_topic_config,
    encode_config,
    parse_ack_id,
)
from penstock.broker.validation import checked_size
from penstock.core.ids import TsidFactory
from penstock.core.limits import SECOND_MS
from penstock.core.message import NO_ATTRIBUTES, Message
from penstock.queue.entry import Entry
from penstock.queue.errors import LeaseNotFound
from penstock.queue.ledger import Ledger
from penstock.queue.pending import SETTLED, Pending, PendingSend
from penstock.queue.stored_queue import StoredQueue
from penstock.queue.stream import Stream

log = logging.getLogger(__name__)


class Broker:
    """Topics and subscriptions over one ledger."""

    def __init__(self, ledger: Ledger, ids: TsidFactory) -> None:
        self.ledger = ledger
        self._ids = ids
        self._topics: dict[str, Stream] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._by_tag: dict[str, StoredQueue] = {}

    def open(self, now_ms: int) -> None:
        """Bring back what the store has."""
        catalog = self.ledger.catalog
        catalog.open(now_ms, lambda record: decode_subscription_config(record.config).options.queue_policy())
        for stream in catalog.streams.values():
            if not decode_topic_config(stream.config).removed:
                self._topics[stream.name] = stream
        for queue in catalog.queues.values():
            self._attach(queue, decode_subscription_config(queue.config), now_ms)

    # Topics

    def register_topic(self, name: str, now_ms: int) -> Pending:
        """Make a topic; one that exists stays as it is."""
        if name in self._topics:
            return SETTLED
        check_name("topic", name)
        config = encode_config(TopicConfig(now_ms))
        pending = self.ledger.catalog.create_stream(name, now_ms, config=config)
        return _then(pending, lambda: self._topics.__setitem__(name, self.ledger.catalog.streams[name]))

    def unregister_topic(self, name: str, now_ms: int) -> list[Pending]:
        """Remove a topic; its subscriptions are detached and emptied, but stay."""
        stream = self._topic(name)
        catalog = self.ledger.catalog
        subscriptions = self._subscriptions_of(stream)
        if not subscriptions:
            return [_then(catalog.drop_stream(stream), lambda: self._topics.pop(name))]
        pendings: list[Pending] = []
        for subscription in subscriptions:
            config = msgspec.structs.replace(subscription.config, detached=True)
            policy = subscription.queue.engine.policy
            pendings.append(
                _then(
                    catalog.configure_queue(subscription.queue, policy, encode_config(config)),
                    partial(setattr, subscription, "config", config),
                )
            )
            pendings.append(catalog.purge(subscription.queue))
        created_ms = decode_topic_config(stream.config).created_ms
        # The stream keeps its subscriptions' queues under a name no topic can have, so that the topic can be made anew.
        tombstone = encode_config(TopicConfig(created_ms, removed=True))
        renamed = catalog.configure_stream(stream, tombstone, name=f"\x01{self._ids.next_id(now_ms)}")
        stream.closing = True  # what is published from now on would outlive the purge
        pendings.append(_then(renamed, lambda: self._topics.pop(name)))
        renamed.otherwise(partial(setattr, stream, "closing", False))
        return pendings

    def topic(self, name: str) -> TopicMetadata | None:
        """What is known of a topic."""
        stream = self._topics.get(name)
        return None if stream is None else TopicMetadata(name, decode_topic_config(stream.config).created_ms)

    def topics(self) -> list[TopicMetadata]:
        """All topics by name."""
        return [metadata for name in sorted(self._topics) if (metadata := self.topic(name)) is not None]

    # Subscriptions

    def register_subscription(self, name: str, topic_name: str, options: SubscriptionOptions, now_ms: int) -> Pending:
        """Make a subscription; the same one again stays as it is."""
        stream = self._topic(topic_name)
        options.check()
        existing = self._subscriptions.get(name)
        if existing is not None:
            config = existing.config
            if (config.topic, config.options, config.detached) != (topic_name, options, False):
                raise SubscriptionExists(name)
            return SETTLED
        check_name("subscription", name)
        config = SubscriptionConfig(topic_name, now_ms, options)
        catalog = self.ledger.catalog
        pending = catalog.create_queue(stream, name, options.queue_policy(), now_ms, config=encode_config(config))
        return _then(pending, lambda: self._attach(catalog.queues[name], config, now_ms))

    def unregister_subscription(self, name: str) -> Pending:
        """Remove a subscription with its messages and leases."""
        subscription = self.subscription(name)
        queue = subscription.queue
        catalog = self.ledger.catalog
        stream = catalog.by_id[queue.stream_id]

        def detach() -> None:
            self._subscriptions.pop(name, None)
            self._by_tag.pop(subscription.tag, None)

        last_of_removed = self._topics.get(stream.name) is not stream and len(stream.queues) == 1
        return _then(catalog.drop_stream(stream) if last_of_removed else catalog.drop_queue(queue), detach)

    def subscription(self, name: str) -> Subscription:
        """The subscription of a name."""
        subscription = self._subscriptions.get(name)
        if subscription is None:
            raise SubscriptionNotFound(name)
        return subscription

    def find_subscription(self, name: str) -> SubscriptionMetadata | None:
        """What is known of a subscription."""
        subscription = self._subscriptions.get(name)
        return None if subscription is None else subscription.metadata()

    def subscriptions(self, topic_name: str | None = None) -> list[SubscriptionMetadata]:
        """All subscriptions by name, or those attached to one topic."""
        if topic_name is None:
            return [self._subscriptions[name].metadata() for name in sorted(self._subscriptions)]
        return [subscription.metadata() for subscription in self._subscriptions_of(self._topic(topic_name))]

    # Messages

    def publish(self, topic_name: str, messages: Sequence[InternalMessage], now_ms: int) -> PendingSend:
        """Take messages in for every subscription of a topic; all of them or, when one is not fit, none."""
        stream = self._topic(topic_name)
        sizes = [checked_size(message) for message in messages]
        next_id = self._ids.next_id
        accepted = [
            Message(next_id(now_ms), message.data, now_ms, size, message.ordering_key or "", _own(message.attributes))
            for message, size in zip(messages, sizes, strict=True)
        ]
        return self.ledger.send(stream, accepted, now_ms, skips=self._skips(stream, sizes, now_ms))

    def pulled(self, subscription: Subscription, entries: list[Entry]) -> list[InternalMessage]:
        """Leased messages as their receiver sees them."""
        return [subscription.pulled(entry) for entry in entries]

    def ack(self, ack_ids: Iterable[str], now_ms: int) -> list[Pending]:
        """Settle deliveries; InvalidAckId and nothing settled when one of the ack ids is not current."""
        by_queue: dict[StoredQueue, dict[int, None]] = {}
        for ack_id in ack_ids:
            queue, entry = self._delivery(ack_id, now_ms)
            by_queue.setdefault(queue, {})[entry.lease_id] = None
        return [self.ledger.ack(queue, lease_ids, now_ms) for queue, lease_ids in by_queue.items()]

    def nack(self, ack_id: str, now_ms: int) -> None:
        """Give a delivery back: it is due again at once, or after the back-off of its retry policy."""
        queue, entry = self._delivery(ack_id, now_ms)
        self.ledger.release(queue, entry.lease_id, now_ms)

    def modify_ack_deadline(self, ack_id: str, seconds: int, now_ms: int) -> None:
        """Extend the current deadline of a delivery by some seconds (ruling 23)."""
        if seconds < 0:
            raise InvalidOptions(f"a deadline is extended by 0 seconds or more, got {seconds}")
        queue, entry = self._delivery(ack_id, now_ms)
        self.ledger.set_deadline(queue, entry.lease_id, entry.deadline_ms + seconds * SECOND_MS, now_ms)

    # Inside

    def _topic(self, name: str) -> Stream:
        stream = self._topics.get(name)
        if stream is None or stream.closing:
            raise TopicNotFound(name)
        return stream

    def _attach(self, queue: StoredQueue, config: SubscriptionConfig, now_ms: int) -> None:
        subscription = Subscription(queue, config, tag=self._ids.next_id(now_ms))
        self._subscriptions[queue.name] = subscription
        self._by_tag[subscription.tag] = queue
        queue.on_dead_letters = partial(self._dead_letter, subscription)

    def _subscriptions_of(self, stream: Stream) -> list[Subscription]:
        return [self._subscriptions[queue.name] for queue in stream.queues.values()]

    def _delivery(self, ack_id: str, now_ms: int) -> tuple[StoredQueue, Entry]:
        """The delivery an ack id stands for, when it is the message's current one."""
        lease_id, tag = parse_ack_id(ack_id)
        queue = self._by_tag.get(tag)
        if queue is None:
            raise InvalidAckId(ack_id)
        try:
            entry = queue.engine.lease(lease_id, now_ms)
        except LeaseNotFound:
            raise InvalidAckId(ack_id) from None
        if ack_id != ack_id_of(entry, tag):
            raise InvalidAckId(ack_id)
        return queue, entry

    def _skips(self, stream: Stream, sizes: list[int], now_ms: int) -> dict[int, int] | None:
        """Which messages which subscriptions do not get because they are at their capacity (BR-022)."""
        total_bytes = sum(sizes)
        full = [found for found in self._subscriptions_of(stream) if not found.has_room(len(sizes), total_bytes)]
        for subscription in full:
            if subscription.config.options.overflow is Overflow.REJECT:
                raise SubscriptionFull(
                    f"subscription {subscription.name} is at its capacity and rejects; "
                    "ack what waits there, raise max_messages or max_bytes, or choose overflow 'drop'"
                )
        skips = {found.queue.id: self._drop_beyond_capacity(found, sizes, now_ms) for found in full}
        return skips or None

    def _drop_beyond_capacity(self, subscription: Subscription, sizes: list[int], now_ms: int) -> int:
        bits = kept = kept_bytes = 0
        for index, size in enumerate(sizes):
            if subscription.has_room(kept + 1, kept_bytes + size):
                kept, kept_bytes = kept + 1, kept_bytes + size
            else:
                bits |= 1 << index
        if subscription.count_drops(bits.bit_count(), now_ms):
            log.warning(
                "subscription is at its capacity, new messages are dropped for it (%d so far)",
                subscription.dropped,
                extra={"queue": subscription.name},
            )
        return bits

    def _dead_letter(self, subscription: Subscription, entries: list[Entry]) -> None:
        """Hand messages that used up their deliveries to the dead-letter topic, or keep them while it is missing."""
        policy = subscription.config.options.dead_letter_policy
        target = self._topics.get(policy.dead_letter_topic) if policy is not None else None
        if target is None or target.closing:
            self.ledger.give_back(subscription.queue, entries)
            return
        copies = [dead_letter_copy(entry, subscription.name) for entry in entries]
        self.ledger.move(subscription.queue, entries, target, copies)


def _own(attributes: Mapping[str, str]) -> Mapping[str, str]:
    """A copy that neither the publisher nor one of the subscribers that share it can change."""
    return MappingProxyType(dict(attributes)) if attributes else NO_ATTRIBUTES


def _then(pending: Pending, action: Callable[[], object]) -> Pending:
    """Do something more once an operation is durable."""
    if pending.done:
        action()
    else:
        pending.also(action)
    return pending
