"""Replay: snapshots, and subscriptions that restart from a time or a snapshot. Nothing here waits.

A restarted subscription gets a new queue: a copy of a retention queue, or of its own, without the messages published
before the requested time. Leases end with the old queue.
"""

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.errors import SnapshotExists, SnapshotNotFound, SubscriptionDetached, WrongSnapshot
from penstock.broker.options import SnapshotMetadata, check_name
from penstock.broker.retention import (
    RETENTION_WINDOW,
    Expired,
    expired_in,
    is_retention_queue,
    retention_policy,
    snapshot_name,
    snapshot_queue,
    subscription_queue,
    topic_queue,
)
from penstock.broker.subscription import (
    BrokerSubscription,
    RetentionConfig,
    decode_retention_config,
    encode_config,
    unwanted_by,
)
from penstock.engine import SETTLED, Pending, StoredQueue


class SubscriptionReplay:
    """Snapshots and restarts of the subscriptions of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ledger = broker.ledger
        self._catalog = broker.ledger.catalog

    def seek(self, subscription_name: str, floor_ms: int, now_ms: int) -> Pending:
        """Restart a subscription from a time: earlier messages are settled, later ones that are retained are not."""
        subscription = self._attached(subscription_name)
        retained = self._catalog.queues.get(subscription_queue(subscription_name))
        retained = retained or self._catalog.queues.get(topic_queue(subscription.config.topic))
        least_ms = (
            subscription.config.floor_ms if retained is None else decode_retention_config(retained.config).floor_ms
        )
        return self._restart(subscription, retained or subscription.queue, max(floor_ms, least_ms), now_ms)

    def seek_to_snapshot(self, subscription_name: str, name: str, now_ms: int) -> Pending:
        """Restart a subscription with the messages of a snapshot and all published since."""
        subscription = self._attached(subscription_name)
        source = self._snapshot(name)
        if source.stream_id != subscription.queue.stream_id:
            raise WrongSnapshot(name, subscription_name)
        return self._restart(subscription, source, decode_retention_config(source.config).floor_ms, now_ms)

    def create_snapshot(
        self, name: str, subscription_name: str, expires_ms: int, now_ms: int, definition: bytes = b""
    ) -> Pending:
        """Retain the messages a subscription has not settled, and all published from now on."""
        subscription = self._attached(subscription_name)
        check_name("snapshot", name)
        if snapshot_queue(name) in self._catalog.queues:
            raise SnapshotExists(name)
        before = subscription.config
        retention_s = before.options.message_retention_seconds
        config = RetentionConfig(now_ms, retention_s, before.topic, definition, expires_ms, before.floor_ms)
        return self._catalog.clone_queue(
            subscription.queue,
            snapshot_queue(name),
            retention_policy(config),
            now_ms,
            config=encode_config(config),
            window=RETENTION_WINDOW,
        )

    def update_snapshot(self, name: str, expires_ms: int, definition: bytes) -> Pending:
        """Change the expiry and the definition of a snapshot."""
        queue = self._snapshot(name)
        before = decode_retention_config(queue.config)
        config = msgspec.structs.replace(before, expires_ms=expires_ms, definition=definition)
        return self._catalog.configure_queue(queue, queue.engine.policy, encode_config(config))

    def drop_snapshot(self, name: str) -> Pending:
        """Remove a snapshot."""
        return self._catalog.drop_queue(self._snapshot(name))

    def snapshot(self, name: str) -> SnapshotMetadata:
        """Return the metadata of a snapshot."""
        config = decode_retention_config(self._snapshot(name).config)
        return SnapshotMetadata(name, config.topic, config.created_ms, config.expires_ms, config.definition)

    def snapshots(self) -> list[SnapshotMetadata]:
        """Return all snapshots by name."""
        names = [name for queue in self._catalog.queues if (name := snapshot_name(queue)) is not None]
        return [self.snapshot(name) for name in sorted(names)]

    def drop_expired_snapshots(self, now_ms: int) -> list[Pending]:
        """Remove expired snapshots."""
        return [self.drop_snapshot(found.name) for found in self.snapshots() if found.expires_ms <= now_ms]

    def retention_queues(self) -> list[StoredQueue]:
        """Return the retention queues of topics and subscriptions."""
        queues = self._catalog.queues
        return [queue for name, queue in queues.items() if is_retention_queue(name) and snapshot_name(name) is None]

    def expired_in(self, retained: StoredQueue, now_ms: int) -> Expired:
        """Return the messages of a queue in the store that are past their retention. Blocks; changes nothing."""
        return expired_in(self._ledger.store, retained, now_ms - retained.engine.policy.retention_ms)

    def trim(self, retained: StoredQueue, expired: Expired, now_ms: int) -> Pending:
        """Drop expired messages of a retention queue, in memory and in the store."""
        self._ledger.expire(retained, now_ms)
        if not expired.messages or retained.closing:
            return SETTLED
        return self._catalog.trim(retained, expired.before_seq, expired.messages, expired.size_bytes)

    def _attached(self, subscription_name: str) -> BrokerSubscription:
        subscription = self._broker.subscription(subscription_name)
        if subscription.config.detached:
            raise SubscriptionDetached(subscription_name)
        return subscription

    def _snapshot(self, name: str) -> StoredQueue:
        queue = self._catalog.queues.get(snapshot_queue(name))
        if queue is None or queue.closing:
            raise SnapshotNotFound(name)
        return queue

    def _restart(self, subscription: BrokerSubscription, source: StoredQueue, floor_ms: int, now_ms: int) -> Pending:
        config = msgspec.structs.replace(subscription.config, floor_ms=floor_ms)
        pending = self._catalog.replace_queue(
            subscription.queue, source, now_ms, config=encode_config(config), unwanted=unwanted_by(config)
        )
        return self._broker.then_attach(pending, subscription.name, now_ms)
