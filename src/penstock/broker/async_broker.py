"""The broker for asyncio: publishes share commits, pulls wait for messages without polling."""

import asyncio
from collections.abc import Iterable, Sequence

from penstock.broker.broker import Broker
from penstock.broker.message import InternalMessage
from penstock.broker.options import SubscriptionOptions, check_max_messages
from penstock.core.clock import Clock
from penstock.core.ids import TsidFactory
from penstock.queue.async_shell import AsyncShell
from penstock.queue.ledger import Ledger
from penstock.queue.pending import Pending
from penstock.queue.policy import Window
from penstock.queue.store.port import Store


class AsyncBroker:
    """Topics and subscriptions on one event loop; `async with AsyncBroker.open(...)` closes it in order."""

    def __init__(self, broker: Broker, shell: AsyncShell, clock: Clock) -> None:
        self.rules = broker
        """Look-ups that need no waiting: topics, subscriptions, counters."""
        self._shell = shell
        self._clock = clock
        self._catalog_lock = asyncio.Lock()
        """Topics and subscriptions change one at a time: what one call makes, the next one finds."""

    @classmethod
    async def open(cls, store: Store, clock: Clock, ids: TsidFactory, window: Window | None = None) -> "AsyncBroker":
        """Bring back what the store has and start."""
        broker = Broker(Ledger(store, ids, window), ids)
        await asyncio.to_thread(broker.open, clock.now_ms())
        return cls(broker, AsyncShell(broker.ledger, clock), clock)

    async def __aenter__(self) -> "AsyncBroker":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def register_topic(self, name: str) -> None:
        """Make a topic; one that exists stays as it is."""
        async with self._catalog_lock:
            await self._shell.commit(self.rules.register_topic(name, self._clock.now_ms()))

    async def unregister_topic(self, name: str) -> None:
        """Remove a topic; its subscriptions are detached and emptied, but stay."""
        async with self._catalog_lock:
            await self._commit_all(self.rules.unregister_topic(name, self._clock.now_ms()))

    async def register_subscription(
        self, name: str, topic_name: str, options: SubscriptionOptions | None = None
    ) -> None:
        """Make a subscription; the same one again stays as it is."""
        options = options or SubscriptionOptions()
        async with self._catalog_lock:
            await self._shell.commit(self.rules.register_subscription(name, topic_name, options, self._clock.now_ms()))

    async def unregister_subscription(self, name: str) -> None:
        """Remove a subscription with its messages and leases."""
        async with self._catalog_lock:
            await self._shell.commit(self.rules.unregister_subscription(name))

    async def publish(self, topic_name: str, messages: Sequence[InternalMessage]) -> list[str]:
        """Take messages in for every subscription of a topic and give them ids; answered when they are durable."""
        send = self.rules.publish(topic_name, messages, self._clock.now_ms())
        await self._shell.commit(send)
        return [receipt.message_id for receipt in send.receipts]

    async def pull(self, subscription_name: str, max_messages: int, *, wait_s: float = 0.0) -> list[InternalMessage]:
        """Lease up to `max_messages`; with none at hand, wait for one to arrive."""
        check_max_messages(max_messages)
        subscription = self.rules.subscription(subscription_name)
        entries = await self._shell.receive(subscription.queue, max_messages, wait_s=wait_s)
        return self.rules.pulled(subscription, entries)

    async def ack(self, ack_ids: Iterable[str]) -> None:
        """Settle deliveries for good; none of them when one ack id is not current."""
        await self._commit_all(self.rules.ack(ack_ids, self._clock.now_ms()))

    def nack(self, ack_id: str) -> None:
        """Give a delivery back, to be delivered again."""
        self.rules.nack(ack_id, self._clock.now_ms())
        self._shell.kick()

    def modify_ack_deadline(self, ack_id: str, seconds: int) -> None:
        """Extend the deadline of a delivery by some seconds."""
        self.rules.modify_ack_deadline(ack_id, seconds, self._clock.now_ms())
        self._shell.kick()

    def tick(self) -> None:
        """Carry out what is due by the clock now, for tests that move a virtual clock."""
        self._shell.tick()

    async def close(self) -> None:
        """Answer waiting pulls with nothing, finish every write, and close the store."""
        await self._shell.close()

    async def _commit_all(self, pendings: list[Pending]) -> None:
        for pending in pendings:
            await self._shell.commit(pending)
