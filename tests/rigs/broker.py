"""A MessageQueue on a virtual clock over any store, with what tests of the broker do all the time."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.message import InternalMessage
from penstock.broker.message_queue import MessageQueue
from penstock.broker.options import SubscriptionOptions
from penstock.domain.errors import PenstockError
from penstock.domain.ids import TsidFactory
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.port import Store
from penstock.engine.store.postgres import PostgresStore
from penstock.engine.store.sqlite import SqliteStore
from penstock.testing.clock import VirtualClock

LOCAL = ("memory", "sqlite")
EVERYWHERE = (*LOCAL, "postgres")
DURABLE = ("sqlite", "postgres")

TOPIC = "orders"
SUBSCRIPTION = "billing"


class BrokerRig:
    """One broker with the topic `orders`, whose subscription `billing` a test makes with the options it needs."""

    def __init__(self, make_store: Callable[[], Store]) -> None:
        self.clock = VirtualClock()
        self._make_store = make_store
        self._open()

    def _open(self) -> None:
        self.store = self._make_store()
        self.queue = MessageQueue(self.clock, TsidFactory(1), self.store)

    def subscribe(self, name: str = SUBSCRIPTION, topic: str = TOPIC, **options: Any) -> None:
        """Register a topic and a subscription of it."""
        self.queue.register_topic(topic)
        self.queue.register_subscription(name, topic, SubscriptionOptions(**options))

    def publish(self, *bodies: str, key: str | None = None, topic: str = TOPIC) -> list[str]:
        """Publish texts in one call, all with one ordering key."""
        messages = [InternalMessage(body.encode(), ordering_key=key) for body in bodies]
        return self.queue.publish(topic, messages)

    def pull(self, max_messages: int = 100, name: str = SUBSCRIPTION) -> list[InternalMessage]:
        """Pull from a subscription."""
        return self.queue.pull(name, max_messages)

    def pull_one(self, name: str = SUBSCRIPTION) -> InternalMessage:
        """The one message a pull of any number gives."""
        (message,) = self.pull(name=name)
        return message

    def pull_texts(self, max_messages: int = 100, name: str = SUBSCRIPTION) -> list[str]:
        """What a pull gives, as texts."""
        return texts(self.pull(max_messages, name))

    def restart(self) -> None:
        """Close in order and open the same store again, a second later."""
        self.queue.close()
        self.clock.advance(1)
        self._open()

    def crash(self) -> None:
        """Open the store again as a process does that was killed: no one wrote down what was in flight."""
        self.store.close()
        self.clock.advance(1)
        self._open()


@contextmanager
def broker_rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerRig]:
    """The rig over the store that the parameter of a fixture names."""
    rig = BrokerRig(_store_maker(request, tmp_path))
    yield rig
    rig.queue.close()


def _store_maker(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "penstock.db", durability="survives-process-crash-only")
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_database")
        return lambda: PostgresStore(url)
    return MemoryStore


def texts(messages: Iterable[InternalMessage]) -> list[str]:
    """The data of messages as text."""
    return [message.data.decode() for message in messages]


@contextmanager
def refused(code: int, message: str | None = None) -> Iterator[None]:
    """Expect a PenstockError of this code, and with exactly this message if one is given."""
    with pytest.raises(PenstockError) as caught:
        yield
    assert caught.value.code == code
    if message is not None:
        assert caught.value.message == message
        assert str(caught.value) == message
