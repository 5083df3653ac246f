"""Replay: snapshots, and subscriptions that start over from a moment or a snapshot. Nothing here waits.

To start over, a subscription gets a fresh queue in the place of its own: a copy of what a keeper holds, or of its
own, less what was published before the moment asked for. Leases end with the old queue.
"""

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.errors import SnapshotExists, SnapshotNotFound, SubscriptionDetached, WrongSnapshot
from penstock.broker.keeper import (
    KEEPER_WINDOW,
    Expired,
    expired_in,
    is_keeper,
    keeper_policy,
    snapshot_keeper,
    snapshot_name,
    subscription_keeper,
    topic_keeper,
)
from penstock.broker.options import SnapshotMetadata, check_name
from penstock.broker.subscription import (
    BrokerSubscription,
    KeeperConfig,
    decode_keeper_config,
    encode_config,
    unwanted_by,
)
from penstock.engine import SETTLED, Pending, StoredQueue


class SubscriptionReplay:
    """Snapshots and new starts over one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ledger = broker.ledger
        self._catalog = broker.ledger.catalog

    def seek(self, subscription_name: str, floor_ms: int, now_ms: int) -> Pending:
        """Start a subscription over: what was published before is settled, what came later and is kept is not."""
        subscription = self._attached(subscription_name)
        kept = self._catalog.queues.get(subscription_keeper(subscription_name))
        kept = kept or self._catalog.queues.get(topic_keeper(subscription.config.topic))
        least_ms = subscription.config.floor_ms if kept is None else decode_keeper_config(kept.config).floor_ms
        return self._start_over(subscription, kept or subscription.queue, max(floor_ms, least_ms), now_ms)

    def seek_to_snapshot(self, subscription_name: str, name: str, now_ms: int) -> Pending:
        """Start a subscription over from what a snapshot holds and all that was published since."""
        subscription = self._attached(subscription_name)
        source = self._snapshot(name)
        if source.stream_id != subscription.queue.stream_id:
            raise WrongSnapshot(name, subscription_name)
        return self._start_over(subscription, source, decode_keeper_config(source.config).floor_ms, now_ms)

    def create_snapshot(
        self, name: str, subscription_name: str, expires_ms: int, now_ms: int, definition: bytes = b""
    ) -> Pending:
        """Keep what a subscription has not settled, and all that is published from now on."""
        subscription = self._attached(subscription_name)
        check_name("snapshot", name)
        if snapshot_keeper(name) in self._catalog.queues:
            raise SnapshotExists(name)
        before = subscription.config
        retention_s = before.options.message_retention_seconds
        config = KeeperConfig(now_ms, retention_s, before.topic, definition, expires_ms, before.floor_ms)
        return self._catalog.clone_queue(
            subscription.queue,
            snapshot_keeper(name),
            keeper_policy(config),
            now_ms,
            config=encode_config(config),
            window=KEEPER_WINDOW,
        )

    def update_snapshot(self, name: str, expires_ms: int, definition: bytes) -> Pending:
        """Give a snapshot another end and another definition."""
        queue = self._snapshot(name)
        before = decode_keeper_config(queue.config)
        config = msgspec.structs.replace(before, expires_ms=expires_ms, definition=definition)
        return self._catalog.configure_queue(queue, queue.engine.policy, encode_config(config))

    def drop_snapshot(self, name: str) -> Pending:
        """Remove a snapshot."""
        return self._catalog.drop_queue(self._snapshot(name))

    def snapshot(self, name: str) -> SnapshotMetadata:
        """What is known of a snapshot."""
        config = decode_keeper_config(self._snapshot(name).config)
        return SnapshotMetadata(name, config.topic, config.created_ms, config.expires_ms, config.definition)

    def snapshots(self) -> list[SnapshotMetadata]:
        """All snapshots by name."""
        names = [name for queue in self._catalog.queues if (name := snapshot_name(queue)) is not None]
        return [self.snapshot(name) for name in sorted(names)]

    # Keepers grow old

    def drop_expired_snapshots(self, now_ms: int) -> list[Pending]:
        """Remove the snapshots whose time is over."""
        return [self.drop_snapshot(found.name) for found in self.snapshots() if found.expires_ms <= now_ms]

    def keepers(self) -> list[StoredQueue]:
        """What keeps messages for a time, snapshots apart."""
        queues = self._catalog.queues
        return [queue for name, queue in queues.items() if is_keeper(name) and snapshot_name(name) is None]

    def expired_in(self, keeper: StoredQueue, now_ms: int) -> Expired:
        """What of a keeper is in the store and past its retention. Blocks; changes nothing."""
        return expired_in(self._ledger.store, keeper, now_ms - keeper.engine.policy.retention_ms)

    def trim(self, keeper: StoredQueue, expired: Expired, now_ms: int) -> Pending:
        """Drop what a keeper has kept for long enough, in memory and in the store."""
        self._ledger.expire(keeper, now_ms)
        if not expired.messages or keeper.closing:
            return SETTLED
        return self._catalog.trim(keeper, expired.before_seq, expired.messages, expired.size_bytes)

    # Inside

    def _attached(self, subscription_name: str) -> BrokerSubscription:
        subscription = self._broker.subscription(subscription_name)
        if subscription.config.detached:
            raise SubscriptionDetached(subscription_name)
        return subscription

    def _snapshot(self, name: str) -> StoredQueue:
        queue = self._catalog.queues.get(snapshot_keeper(name))
        if queue is None or queue.closing:
            raise SnapshotNotFound(name)
        return queue

    def _start_over(self, subscription: BrokerSubscription, source: StoredQueue, floor_ms: int, now_ms: int) -> Pending:
        config = msgspec.structs.replace(subscription.config, floor_ms=floor_ms)
        pending = self._catalog.replace_queue(
            subscription.queue, source, now_ms, config=encode_config(config), unwanted=unwanted_by(config)
        )
        return self._broker.then_attach(pending, subscription.name, now_ms)
