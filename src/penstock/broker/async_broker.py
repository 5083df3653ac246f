"""The broker for asyncio: publishes share commits, pulls wait for messages without polling."""

import asyncio
from collections.abc import Iterable, Sequence

from penstock.broker.broker import Broker
from penstock.broker.message import InternalMessage
from penstock.broker.options import SubscriptionOptions, check_max_messages
from penstock.broker.records import Records
from penstock.broker.replay import SubscriptionReplay
from penstock.broker.subscription import BrokerSubscription
from penstock.domain.ids import TsidFactory
from penstock.edge.clock import Clock
from penstock.engine import AsyncShell, Entry, Ledger, Pending, Store, Window


class AsyncBroker:
    """Topics and subscriptions on one event loop; `async with await AsyncBroker.open(...)` closes it in order."""

    def __init__(self, broker: Broker, shell: AsyncShell, clock: Clock) -> None:
        self.rules = broker
        """Look-ups that need no waiting: topics, subscriptions, counters."""
        self.replay = SubscriptionReplay(broker)
        """Look-ups of snapshots."""
        self.records = Records(broker.ledger.catalog)
        """Look-ups of records."""
        self._shell = shell
        self._clock = clock
        self._catalog_lock = asyncio.Lock()
        """Topics and subscriptions change one at a time, so that each call sees the result of the one before."""

    @classmethod
    async def open(cls, store: Store, clock: Clock, ids: TsidFactory, window: Window | None = None) -> "AsyncBroker":
        """Restore what is in the store, and start."""
        broker = Broker(Ledger(store, ids, window), ids)
        await asyncio.to_thread(broker.open, clock.now_ms())
        return cls(broker, AsyncShell(broker.ledger, clock), clock)

    @property
    def last_failure(self) -> str | None:
        """Why the latest commit failed; None if it succeeded."""
        return self._shell.last_failure

    async def __aenter__(self) -> "AsyncBroker":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def register_topic(self, name: str, *, retention_s: int = 0, definition: bytes = b"") -> None:
        """Create a topic; an existing one is not changed."""
        async with self._catalog_lock:
            now_ms = self._clock.now_ms()
            await self._shell.commit(
                self.rules.register_topic(name, now_ms, retention_s=retention_s, definition=definition)
            )

    async def update_topic(self, name: str, *, retention_s: int, definition: bytes) -> None:
        """Change the retention and the definition of a topic."""
        async with self._catalog_lock:
            now_ms = self._clock.now_ms()
            await self._shell.commit(
                self.rules.update_topic(name, now_ms, retention_s=retention_s, definition=definition)
            )

    async def unregister_topic(self, name: str) -> None:
        """Remove a topic; its subscriptions stay, detached and empty."""
        async with self._catalog_lock:
            await self._commit_all(self.rules.unregister_topic(name, self._clock.now_ms()))

    async def register_subscription(
        self, name: str, topic_name: str, options: SubscriptionOptions | None = None, *, definition: bytes = b""
    ) -> None:
        """Create a subscription; an existing one with the same options is not changed."""
        options = options or SubscriptionOptions()
        async with self._catalog_lock:
            now_ms = self._clock.now_ms()
            await self._shell.commit(
                self.rules.register_subscription(name, topic_name, options, now_ms, definition=definition)
            )

    async def update_subscription(self, name: str, options: SubscriptionOptions, *, definition: bytes) -> None:
        """Change the options of a subscription, except ordering and filter."""
        async with self._catalog_lock:
            now_ms = self._clock.now_ms()
            await self._shell.commit(self.rules.update_subscription(name, options, now_ms, definition=definition))

    async def detach_subscription(self, name: str) -> None:
        """Detach a subscription from its topic: it drops its messages and gets no more, but stays."""
        async with self._catalog_lock:
            await self._shell.commit(self.rules.detach_subscription(name, self._clock.now_ms()))

    async def unregister_subscription(self, name: str) -> None:
        """Remove a subscription with its messages and leases."""
        async with self._catalog_lock:
            await self._shell.commit(self.rules.unregister_subscription(name))

    async def seek(self, subscription_name: str, floor_ms: int) -> None:
        """Restart a subscription from a time: earlier messages are settled, later ones that are retained are not."""
        async with self._catalog_lock:
            await self._shell.commit(self.replay.seek(subscription_name, floor_ms, self._clock.now_ms()))

    async def seek_to_snapshot(self, subscription_name: str, snapshot_name: str) -> None:
        """Restart a subscription with the messages of a snapshot and all published since."""
        async with self._catalog_lock:
            now_ms = self._clock.now_ms()
            await self._shell.commit(self.replay.seek_to_snapshot(subscription_name, snapshot_name, now_ms))

    async def create_snapshot(
        self, name: str, subscription_name: str, expires_ms: int, *, definition: bytes = b""
    ) -> None:
        """Retain the messages a subscription has not settled, and all published from now on."""
        async with self._catalog_lock:
            now_ms = self._clock.now_ms()
            await self._shell.commit(
                self.replay.create_snapshot(name, subscription_name, expires_ms, now_ms, definition)
            )

    async def update_snapshot(self, name: str, expires_ms: int, definition: bytes) -> None:
        """Change the expiry and the definition of a snapshot."""
        async with self._catalog_lock:
            await self._shell.commit(self.replay.update_snapshot(name, expires_ms, definition))

    async def drop_snapshot(self, name: str) -> None:
        """Remove a snapshot."""
        async with self._catalog_lock:
            await self._shell.commit(self.replay.drop_snapshot(name))

    async def sweep(self) -> None:
        """Drop expired snapshots and messages past their retention; meant to run about once a minute."""
        async with self._catalog_lock:
            await self._commit_all(self.replay.drop_expired_snapshots(self._clock.now_ms()))
            for retained in self.replay.retention_queues():
                now_ms = self._clock.now_ms()
                expired = await asyncio.to_thread(self.replay.expired_in, retained, now_ms)
                await self._shell.commit(self.replay.trim(retained, expired, now_ms))

    async def put_record(self, key: str, value: bytes) -> None:
        """Store a value beside the topics, replacing the previous one."""
        async with self._catalog_lock:
            await self._shell.commit(self.records.put(key, value, self._clock.now_ms()))

    async def drop_record(self, key: str) -> None:
        """Remove a value."""
        async with self._catalog_lock:
            await self._shell.commit(self.records.drop(key))

    async def publish(self, topic_name: str, messages: Sequence[InternalMessage]) -> list[str]:
        """Publish messages to a topic and return their ids once they are durable."""
        send = self.rules.publish(topic_name, messages, self._clock.now_ms())
        await self._shell.commit(send)
        return send.message_ids

    async def pull(self, subscription_name: str, max_messages: int, *, wait_s: float = 0.0) -> list[InternalMessage]:
        """Lease up to `max_messages`; if there are none, wait for one to arrive."""
        check_max_messages(max_messages)
        subscription = self.rules.subscription(subscription_name)
        entries = await self._shell.receive(subscription.queue, max_messages, wait_s=wait_s)
        return self.rules.pulled(subscription, entries)

    async def lease(
        self,
        subscription: BrokerSubscription,
        max_messages: int,
        *,
        max_bytes: int | None = None,
        lease_ms: int | None = None,
        wait_s: float = 0.0,
    ) -> list[Entry]:
        """Do the same as `pull`, with other limits; return nothing if the subscription is removed or restarted."""
        subscription.active_ms = self._clock.now_ms()
        return await self._shell.receive(
            subscription.queue, max_messages, wait_s=wait_s, max_bytes=max_bytes, lease_ms=lease_ms
        )

    async def ack_current(self, subscription: BrokerSubscription, ack_ids: Iterable[str]) -> list[str]:
        """Settle current deliveries; return the ack ids that are not current."""
        pending, stale = self.rules.ack_current(subscription, ack_ids, self._clock.now_ms())
        await self._shell.commit(pending)
        return stale

    def set_ack_deadlines(self, subscription: BrokerSubscription, deadlines_s: Iterable[tuple[str, int]]) -> list[str]:
        """Set deadlines in seconds from now, 0 to give a delivery back; return the ack ids that are not current."""
        now_ms = self._clock.now_ms()
        set_deadline = self.rules.set_ack_deadline
        stale = [ack_id for ack_id, seconds in deadlines_s if not set_deadline(subscription, ack_id, seconds, now_ms)]
        self._shell.kick()
        return stale

    async def ack(self, ack_ids: Iterable[str]) -> None:
        """Settle deliveries; settle none if one of the ack ids is not current."""
        await self._commit_all(self.rules.ack(ack_ids, self._clock.now_ms()))

    def nack(self, ack_id: str) -> None:
        """Return a delivery to the subscription, to be delivered again."""
        self.rules.nack(ack_id, self._clock.now_ms())
        self._shell.kick()

    def modify_ack_deadline(self, ack_id: str, seconds: int) -> None:
        """Extend the deadline of a delivery by some seconds."""
        self.rules.modify_ack_deadline(ack_id, seconds, self._clock.now_ms())
        self._shell.kick()

    def answer_waiters(self) -> None:
        """Return nothing to waiting pulls, now and later, before a stop."""
        self._shell.answer_waiters()

    def answer_waiters_of(self, subscription_name: str) -> None:
        """Return nothing to the pulls that wait for a subscription; later ones wait again."""
        if self.rules.find_subscription(subscription_name) is not None:
            self._shell.answer_waiters_of(self.rules.subscription(subscription_name).queue)

    def tick(self) -> None:
        """Process what is due by the clock, for tests with a virtual clock."""
        self._shell.tick()

    async def close(self) -> None:
        """Return nothing to waiting pulls, finish every write, and close the store."""
        await self._shell.close()

    async def _commit_all(self, pendings: list[Pending]) -> None:
        for pending in pendings:
            await self._shell.commit(pending)
