"""The in-process broker (BR-001): a thread-safe singleton whose calls are complete when they return."""

import threading
from collections.abc import Iterable, Sequence
from typing import ClassVar

from penstock.broker.broker import Broker
from penstock.broker.errors import TopicNotFound
from penstock.broker.message import InternalMessage
from penstock.broker.options import SubscriptionMetadata, SubscriptionOptions, TopicMetadata, check_max_messages
from penstock.domain.ids import TsidFactory
from penstock.domain.limits import MINUTE_MS
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.node import process_ids
from penstock.engine import BlockingShell, Counters, Ledger, MemoryStore, Store, Window


class MessageQueue:
    """Topics, subscriptions and their messages; durable with a durable store, otherwise in memory."""

    _instance: ClassVar["MessageQueue | None"] = None
    _instance_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self, clock: Clock, ids: TsidFactory, store: Store | None = None, window: Window | None = None
    ) -> None:
        ledger = Ledger(store or MemoryStore(), ids, window)
        self._clock = clock
        self._broker = Broker(ledger, ids)
        self._shell = BlockingShell(ledger, clock)
        self._lock = threading.RLock()
        self._swept_ms = clock.now_ms()
        self._broker.open(self._swept_ms)

    @classmethod
    def get_instance(cls) -> "MessageQueue":
        """Return the in-memory broker of this process, created on first use."""
        with cls._instance_lock:
            if cls._instance is None:
                cls._instance = cls(SystemClock(), process_ids())
            return cls._instance

    @classmethod
    def reset_instance(cls) -> None:
        """Forget the broker of this process and all its messages; the next `get_instance` creates a new one."""
        with cls._instance_lock:
            cls._instance = None

    def register_topic(self, topic_name: str) -> None:
        """Create a topic; an existing one is not changed."""
        with self._lock:
            self._shell.commit(self._broker.register_topic(topic_name, self._now_ms()))

    def unregister_topic(self, topic_name: str) -> None:
        """Remove a topic; its subscriptions stay, detached and empty."""
        with self._lock:
            for pending in self._broker.unregister_topic(topic_name, self._now_ms()):
                self._shell.commit(pending)

    def topic_exists(self, topic_name: str) -> bool:
        """Return whether a topic exists."""
        return self.get_topic(topic_name) is not None

    def get_topic(self, topic_name: str) -> TopicMetadata | None:
        """Return the metadata of a topic, or None."""
        with self._lock:
            return self._broker.topic(topic_name)

    def get_all_topics(self) -> list[TopicMetadata]:
        """Return all topics by name."""
        with self._lock:
            return self._broker.topics()

    def register_subscription(
        self, subscription_name: str, topic_name: str, options: SubscriptionOptions | None = None
    ) -> None:
        """Create a subscription; an existing one with the same options is not changed."""
        with self._lock:
            options = options or SubscriptionOptions()
            pending = self._broker.register_subscription(subscription_name, topic_name, options, self._now_ms())
            self._shell.commit(pending)

    def unregister_subscription(self, subscription_name: str) -> None:
        """Remove a subscription with its messages and leases."""
        with self._lock:
            self._shell.commit(self._broker.unregister_subscription(subscription_name))

    def subscription_exists(self, subscription_name: str) -> bool:
        """Return whether a subscription exists."""
        return self.get_subscription(subscription_name) is not None

    def get_subscription(self, subscription_name: str) -> SubscriptionMetadata | None:
        """Return the metadata of a subscription, or None."""
        with self._lock:
            return self._broker.find_subscription(subscription_name)

    def get_subscriptions_for_topic(self, topic_name: str) -> list[SubscriptionMetadata]:
        """Return the subscriptions attached to a topic; none if it does not exist."""
        with self._lock:
            try:
                return self._broker.subscriptions(topic_name)
            except TopicNotFound:
                return []

    def get_all_subscriptions(self) -> list[SubscriptionMetadata]:
        """Return all subscriptions by name."""
        with self._lock:
            return self._broker.subscriptions()

    def counters(self, subscription_name: str) -> Counters:
        """Return the number of messages of a subscription by state."""
        with self._lock:
            self._catch_up()
            return self._broker.subscription(subscription_name).queue.counters()

    def dropped(self, subscription_name: str) -> int:
        """Return how many messages a subscription did not get because it was at its capacity."""
        with self._lock:
            return self._broker.subscription(subscription_name).dropped

    def publish(self, topic_name: str, messages: Sequence[InternalMessage]) -> list[str]:
        """Publish messages to a topic and return their ids; all of them, or none on an error."""
        with self._lock:
            send = self._broker.publish(topic_name, messages, self._catch_up())
            self._shell.commit(send)
            return send.message_ids

    def pull(self, subscription_name: str, max_messages: int) -> list[InternalMessage]:
        """Lease up to `max_messages`; those not acked by their deadline are delivered again."""
        with self._lock:
            check_max_messages(max_messages)
            self._catch_up()
            subscription = self._broker.subscription(subscription_name)
            return self._broker.pulled(subscription, self._shell.receive(subscription.queue, max_messages))

    def ack(self, ack_id: str) -> None:
        """Settle a delivery."""
        self.ack_all((ack_id,))

    def ack_all(self, ack_ids: Iterable[str]) -> None:
        """Settle several deliveries; settle none if one of the ack ids is not current."""
        with self._lock:
            for pending in self._broker.ack(ack_ids, self._catch_up()):
                self._shell.commit(pending)

    def nack(self, ack_id: str) -> None:
        """Return a delivery to the subscription, to be delivered again."""
        with self._lock:
            self._broker.nack(ack_id, self._catch_up())
            self._shell.commit()

    def modify_ack_deadline(self, ack_id: str, seconds: int) -> None:
        """Extend the deadline of a delivery by some seconds."""
        with self._lock:
            self._broker.modify_ack_deadline(ack_id, seconds, self._catch_up())

    def close(self) -> None:
        """Write pending changes and release the store."""
        with self._lock:
            self._broker.ledger.save_delivery_counts()
            self._shell.commit()
            self._broker.ledger.store.close()

    def _now_ms(self) -> int:
        return self._clock.now_ms()

    def _catch_up(self) -> int:
        """Process what is due by the clock, because no background thread does, and return the time."""
        now_ms = self._now_ms()
        ledger = self._broker.ledger
        due_ms = ledger.next_due_ms()
        if due_ms is not None and due_ms <= now_ms:
            self._shell.run_due()
        if now_ms - self._swept_ms >= MINUTE_MS:
            self._swept_ms = now_ms
            ledger.sweep(now_ms)
            self._shell.commit()
        return now_ms
