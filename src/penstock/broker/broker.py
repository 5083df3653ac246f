"""The broker's rules: topics, subscriptions, publish, pull, settle. Nothing here waits or reads a clock.

Each operation that must be durable returns a Pending, which the blocking and the asyncio broker commit.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import msgspec

from penstock.broker.admission import checked_size, skips, unwanted_skips
from penstock.broker.errors import (
    InvalidAckId,
    InvalidOptions,
    SubscriptionExists,
    SubscriptionNotFound,
    TopicNotFound,
)
from penstock.broker.message import InternalMessage, dead_letter_copy
from penstock.broker.options import SubscriptionMetadata, SubscriptionOptions, TopicMetadata, check_name
from penstock.broker.records import is_record
from penstock.broker.retention import (
    RETENTION_WINDOW,
    RetentionQueues,
    is_retention_queue,
    retention_policy,
    subscription_queue,
)
from penstock.broker.subscription import (
    BrokerSubscription,
    SubscriptionConfig,
    TopicConfig,
    ack_id_of,
    decode_retention_config,
    decode_subscription_config,
    decode_topic_config,
    encode_config,
    parse_ack_id,
)
from penstock.domain.ids import TsidFactory
from penstock.domain.limits import SECOND_MS
from penstock.domain.message import NO_ATTRIBUTES, Message
from penstock.engine import (
    SETTLED,
    Entry,
    LeaseNotFound,
    Ledger,
    Pending,
    PendingSend,
    QueuePolicy,
    QueueRecord,
    StoredQueue,
    Stream,
    then,
)

log = logging.getLogger(__name__)


class Broker:
    """Topics and subscriptions over one ledger."""

    def __init__(self, ledger: Ledger, ids: TsidFactory) -> None:
        self.ledger = ledger
        self._ids = ids
        self._retention = RetentionQueues(ledger.catalog)
        self._topics: dict[str, Stream] = {}
        self._subscriptions: dict[str, BrokerSubscription] = {}
        self._by_tag: dict[str, StoredQueue] = {}

    def open(self, now_ms: int) -> None:
        """Restore what is in the store."""
        catalog = self.ledger.catalog
        catalog.open(now_ms, _stored_policy)
        for stream in catalog.streams.values():
            if not is_record(stream.name) and not decode_topic_config(stream.config).removed:
                self._topics[stream.name] = stream
        for queue in catalog.queues.values():
            if is_retention_queue(queue.name):
                queue.window = RETENTION_WINDOW
            else:
                self._attach(queue, now_ms)
        for stream in self._topics.values():
            self._retention.retain_topic(stream, decode_topic_config(stream.config).retention_s, now_ms)

    def register_topic(self, name: str, now_ms: int, *, retention_s: int = 0, definition: bytes = b"") -> Pending:
        """Create a topic; an existing one is not changed."""
        if name in self._topics:
            return SETTLED
        check_name("topic", name)
        config = encode_config(TopicConfig(now_ms, retention_s=retention_s, definition=definition))
        pending = self.ledger.catalog.create_stream(
            name,
            now_ms,
            config=config,
            add_queues=lambda stream: self._retention.retain_topic(stream, retention_s, now_ms),
        )

        def appear() -> None:
            self._topics[name] = self.ledger.catalog.streams[name]

        return then(pending, appear)

    def update_topic(self, name: str, now_ms: int, *, retention_s: int, definition: bytes) -> Pending:
        """Change the retention and the definition of a topic."""
        stream = self._topic(name)
        config = msgspec.structs.replace(
            decode_topic_config(stream.config), retention_s=retention_s, definition=definition
        )
        self._retention.retain_topic(stream, retention_s, now_ms)
        return self.ledger.catalog.configure_stream(stream, encode_config(config))

    def unregister_topic(self, name: str, now_ms: int) -> list[Pending]:
        """Remove a topic; its subscriptions stay, detached and empty."""
        stream = self._topic(name)
        catalog = self.ledger.catalog
        subscriptions = self._subscriptions_of(stream)
        if not subscriptions:
            return [then(catalog.drop_stream(stream), lambda: self._topics.pop(name))]
        retention_queues = [queue for queue in stream.queues.values() if is_retention_queue(queue.name)]
        pendings = [catalog.drop_queue(retained) for retained in retention_queues]
        for subscription in subscriptions:
            config = msgspec.structs.replace(subscription.config, detached=True)
            policy = subscription.queue.engine.policy
            pendings.append(
                then(
                    catalog.configure_queue(subscription.queue, policy, encode_config(config)),
                    partial(setattr, subscription, "config", config),
                )
            )
            pendings.append(catalog.purge(subscription.queue))
        created_ms = decode_topic_config(stream.config).created_ms
        # The stream keeps the queues under a name no topic can have, so that the topic can be created again.
        tombstone = encode_config(TopicConfig(created_ms, removed=True))
        renamed = catalog.configure_stream(stream, tombstone, name=self._tombstone_name(now_ms))
        stream.closing = True  # a later publish would outlive the purge
        pendings.append(then(renamed, lambda: self._topics.pop(name)))
        renamed.on_failure(partial(setattr, stream, "closing", False))
        return pendings

    def topic(self, name: str) -> TopicMetadata | None:
        """Return the metadata of a topic, or None."""
        stream = self._topics.get(name)
        if stream is None:
            return None
        config = decode_topic_config(stream.config)
        return TopicMetadata(name, config.created_ms, config.definition)

    def topics(self) -> list[TopicMetadata]:
        """Return all topics by name."""
        return [metadata for name in sorted(self._topics) if (metadata := self.topic(name)) is not None]

    def register_subscription(
        self, name: str, topic_name: str, options: SubscriptionOptions, now_ms: int, *, definition: bytes = b""
    ) -> Pending:
        """Create a subscription; an existing one with the same options is not changed."""
        stream = self._topic(topic_name)
        options.check()
        existing = self._subscriptions.get(name)
        if existing is not None:
            config = existing.config
            if (config.topic, config.options, config.detached) != (topic_name, options, False):
                raise SubscriptionExists(name)
            return SETTLED
        check_name("subscription", name)
        config = SubscriptionConfig(topic_name, now_ms, options, definition=definition)
        catalog = self.ledger.catalog
        if options.retain_acked:
            self._retention.create(
                stream, subscription_queue(name), topic_name, options.message_retention_seconds, now_ms
            )
        pending = catalog.create_queue(stream, name, options.queue_policy(), now_ms, config=encode_config(config))
        return self.then_attach(pending, name, now_ms)

    def update_subscription(
        self, name: str, options: SubscriptionOptions, now_ms: int, *, definition: bytes
    ) -> Pending:
        """Change the options of a subscription, except ordering and filter."""
        subscription = self.subscription(name)
        options.check()
        before = subscription.config
        if (options.message_ordering, options.filter) != (before.options.message_ordering, before.options.filter):
            raise InvalidOptions(f"the ordering and the filter of a subscription cannot be changed: {name}")
        config = msgspec.structs.replace(before, options=options, definition=definition)
        if not config.detached:
            self._retention.retain_subscription(subscription, options, now_ms)
        pending = self.ledger.catalog.configure_queue(subscription.queue, options.queue_policy(), encode_config(config))
        return then(pending, partial(setattr, subscription, "config", config))

    def detach_subscription(self, name: str, now_ms: int) -> Pending:
        """Detach a subscription from its topic: it drops its messages and gets no more, but stays."""
        subscription = self.subscription(name)
        if subscription.config.detached:
            return SETTLED
        config = msgspec.structs.replace(subscription.config, detached=True)
        self._retention.drop(subscription_queue(name))
        pending = self.ledger.catalog.isolate_queue(
            subscription.queue,
            self._tombstone_name(now_ms),
            now_ms,
            stream_config=encode_config(TopicConfig(now_ms, removed=True)),
            config=encode_config(config),
        )
        return self.then_attach(pending, name, now_ms)

    def unregister_subscription(self, name: str) -> Pending:
        """Remove a subscription with its messages and leases."""
        subscription = self.subscription(name)
        queue = subscription.queue
        catalog = self.ledger.catalog
        stream = catalog.by_id[queue.stream_id]

        def detach() -> None:
            self._subscriptions.pop(name, None)
            self._by_tag.pop(subscription.tag, None)

        self._retention.drop(subscription_queue(name))
        last_of_removed = self._topics.get(stream.name) is not stream and len(stream.queues) == 1
        return then(catalog.drop_stream(stream) if last_of_removed else catalog.drop_queue(queue), detach)

    def subscription(self, name: str) -> BrokerSubscription:
        """Return the subscription with a name."""
        subscription = self._subscriptions.get(name)
        if subscription is None:
            raise SubscriptionNotFound(name)
        return subscription

    def find_subscription(self, name: str) -> SubscriptionMetadata | None:
        """Return the metadata of a subscription, or None."""
        subscription = self._subscriptions.get(name)
        return None if subscription is None else subscription.metadata()

    def subscriptions(self, topic_name: str | None = None) -> list[SubscriptionMetadata]:
        """Return all subscriptions by name, or those attached to one topic."""
        if topic_name is None:
            return [self._subscriptions[name].metadata() for name in sorted(self._subscriptions)]
        return [subscription.metadata() for subscription in self._subscriptions_of(self._topic(topic_name))]

    def publish(self, topic_name: str, messages: Sequence[InternalMessage], now_ms: int) -> PendingSend:
        """Publish messages to a topic; all of them, or none if one is invalid."""
        stream = self._topic(topic_name)
        sizes = [checked_size(message) for message in messages]
        ids = self._ids.next_ids(now_ms, len(messages))
        accepted = [
            Message(
                message_id,
                message.data,
                now_ms,
                size,
                message.ordering_key or "",
                _own(message.attributes) if message.attributes else NO_ATTRIBUTES,
                notes=message.notes,
            )
            for message_id, message, size in zip(ids, messages, sizes, strict=True)
        ]
        return self.ledger.send(stream, accepted, now_ms, skips=skips(self._subscriptions_of(stream), accepted, now_ms))

    def pulled(self, subscription: BrokerSubscription, entries: list[Entry]) -> list[InternalMessage]:
        """Return leased messages as their receiver sees them."""
        return [subscription.pulled(entry) for entry in entries]

    def ack(self, ack_ids: Iterable[str], now_ms: int) -> list[Pending]:
        """Settle deliveries; raise InvalidAckId and settle none if one of the ack ids is not current."""
        by_queue: dict[StoredQueue, dict[int, None]] = {}
        for ack_id in ack_ids:
            queue, entry = self._delivery(ack_id, now_ms)
            by_queue.setdefault(queue, {})[entry.lease_id] = None
        return [self.ledger.ack(queue, lease_ids, now_ms) for queue, lease_ids in by_queue.items()]

    def ack_current(
        self, subscription: BrokerSubscription, ack_ids: Iterable[str], now_ms: int
    ) -> tuple[Pending, list[str]]:
        """Settle the current deliveries of a subscription; also return the ack ids that are not current."""
        lease_ids: dict[int, None] = {}
        stale: list[str] = []
        for ack_id in ack_ids:
            entry = self._current(subscription, ack_id, now_ms)
            if entry is None:
                stale.append(ack_id)
            else:
                lease_ids[entry.lease_id] = None
        return (self.ledger.ack(subscription.queue, lease_ids, now_ms) if lease_ids else SETTLED), stale

    def set_ack_deadline(self, subscription: BrokerSubscription, ack_id: str, seconds: int, now_ms: int) -> bool:
        """Set a deadline in seconds from now, 0 to give the delivery back; return False if it is not current."""
        entry = self._current(subscription, ack_id, now_ms)
        if entry is None:
            return False
        if seconds:
            self.ledger.set_deadline(subscription.queue, entry.lease_id, now_ms + seconds * SECOND_MS, now_ms)
        else:
            self.ledger.release(subscription.queue, entry.lease_id, now_ms)
        return True

    def nack(self, ack_id: str, now_ms: int) -> None:
        """Return a delivery: it is due again immediately, or after the back-off of its retry policy."""
        queue, entry = self._delivery(ack_id, now_ms)
        self.ledger.release(queue, entry.lease_id, now_ms)

    def modify_ack_deadline(self, ack_id: str, seconds: int, now_ms: int) -> None:
        """Extend the current deadline of a delivery by some seconds (BR-009)."""
        if seconds < 0:
            raise InvalidOptions(f"a deadline is extended by 0 seconds or more, got {seconds}")
        queue, entry = self._delivery(ack_id, now_ms)
        self.ledger.set_deadline(queue, entry.lease_id, entry.deadline_ms + seconds * SECOND_MS, now_ms)

    def then_attach(self, pending: Pending, name: str, now_ms: int) -> Pending:
        """Attach a subscription to the queue of its name once that is durable."""
        return then(pending, lambda: self._attach(self.ledger.catalog.queues[name], now_ms))

    def _topic(self, name: str) -> Stream:
        stream = self._topics.get(name)
        if stream is None or stream.closing:
            raise TopicNotFound(name)
        return stream

    def _attach(self, queue: StoredQueue, now_ms: int) -> None:
        subscription = BrokerSubscription(
            queue, decode_subscription_config(queue.config), tag=self._ids.next_id(now_ms)
        )
        subscription.active_ms = now_ms
        before = self._subscriptions.get(queue.name)
        if before is not None:
            del self._by_tag[before.tag]
        self._subscriptions[queue.name] = subscription
        self._by_tag[subscription.tag] = queue
        queue.unwanted = subscription.unwanted
        queue.on_dead_letters = partial(self._dead_letter, subscription)

    def _subscriptions_of(self, stream: Stream) -> list[BrokerSubscription]:
        found = self._subscriptions
        return [found[queue.name] for queue in stream.queues.values() if queue.name in found]

    def _tombstone_name(self, now_ms: int) -> str:
        """Return a name no topic can have, for a stream whose topic is gone."""
        return f"\x01{self._ids.next_id(now_ms)}"

    def _current(self, subscription: BrokerSubscription, ack_id: str, now_ms: int) -> Entry | None:
        """Return a subscription's delivery by its ack id, or None if it is not current."""
        try:
            queue, entry = self._delivery(ack_id, now_ms)
        except InvalidAckId:
            return None
        return entry if queue is subscription.queue else None

    def _delivery(self, ack_id: str, now_ms: int) -> tuple[StoredQueue, Entry]:
        """Return a delivery by its ack id; raise InvalidAckId if it is not current."""
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

    def _dead_letter(self, subscription: BrokerSubscription, entries: list[Entry]) -> None:
        """Move messages without deliveries left to the dead-letter topic; keep them if it does not exist."""
        policy = subscription.config.options.dead_letter_policy
        target = self._topics.get(policy.dead_letter_topic) if policy is not None else None
        if target is None or target.closing:
            self.ledger.give_back(subscription.queue, entries)
            return
        copies = [dead_letter_copy(entry, subscription.name) for entry in entries]
        self.ledger.move(
            subscription.queue, entries, target, copies, unwanted_skips(self._subscriptions_of(target), copies)
        )


def _stored_policy(record: QueueRecord) -> QueuePolicy:
    if is_retention_queue(record.name):
        return retention_policy(decode_retention_config(record.config))
    return decode_subscription_config(record.config).options.queue_policy()


def _own(attributes: Mapping[str, str]) -> Mapping[str, str]:
    """Return a copy that neither the publisher nor a subscriber can change."""
    return MappingProxyType(dict(attributes))
