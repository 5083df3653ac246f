"""What the Pub/Sub tests do with Google's clients over and over."""

import warnings
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

from google.api_core.exceptions import NotFound

from tests.rigs.penstock_process import wait_until
from tests.services.pubsub_server import PROJECT, Clients


class Rig:
    """Clients, with topics and subscriptions under names of their own that go with the test."""

    def __init__(self, clients: Clients, clean_up: ExitStack) -> None:
        self.publisher = clients.publisher
        self.subscriber = clients.subscriber
        self.requests = clients.requests
        self.schemas = clients.schemas
        self._clean_up = clean_up

    def name(self, kind: str) -> str:
        """A name no one has."""
        return f"{PROJECT}/{kind}/t{uuid4().hex}"

    def topic(self, **fields: Any) -> str:
        """A new topic."""
        name = self.name("topics")
        self.publisher.create_topic(request={"name": name, **fields})
        self._clean_up.callback(_quietly, self.publisher.delete_topic, topic=name)
        return name

    def subscription(self, topic: str, **fields: Any) -> str:
        """A new subscription to a topic."""
        name = self.name("subscriptions")
        self.subscriber.create_subscription(request={"name": name, "topic": topic, **fields})
        self._clean_up.callback(_quietly, self.subscriber.delete_subscription, subscription=name)
        return name

    def publish(self, topic: str, *bodies: str, key: str = "", **attributes: str) -> list[str]:
        """Publish, in one order; the ids."""
        futures = [self.publisher.publish(topic, body.encode(), ordering_key=key, **attributes) for body in bodies]
        return [future.result(timeout=60) for future in futures]

    def pull(self, subscription: str, count: int, *, ack: bool = True) -> list[Any]:
        """Pull until this many messages came; fails when they do not come."""
        received: list[Any] = []

        def enough() -> bool:
            some = self.subscriber.pull(subscription=subscription, max_messages=count - len(received), timeout=60)
            received.extend(some.received_messages)
            if ack and some.received_messages:
                self.ack(subscription, some.received_messages)
            return len(received) >= count

        wait_until(enough, otherwise=lambda: f"after {bodies(received)}")
        return received

    def ack(self, subscription: str, received: Any) -> None:
        """Acknowledge received messages."""
        self.subscriber.acknowledge(subscription=subscription, ack_ids=[message.ack_id for message in received])

    def nack(self, subscription: str, received: Any) -> None:
        """Give received messages back."""
        self.deadline(subscription, received, 0)

    def deadline(self, subscription: str, received: Any, seconds: int) -> None:
        """Give received messages another deadline."""
        ack_ids = [message.ack_id for message in received]
        self.subscriber.modify_ack_deadline(subscription=subscription, ack_ids=ack_ids, ack_deadline_seconds=seconds)

    def is_empty(self, subscription: str) -> bool:
        """Whether nothing can be pulled now."""
        request = {"subscription": subscription, "max_messages": 10, "return_immediately": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Google would rather have everyone wait
            return not self.subscriber.pull(request=request).received_messages


def bodies(received: Any) -> list[str]:
    """The data of received messages as text."""
    return [message.message.data.decode() for message in received]


def _quietly(delete: Any, **name: str) -> None:
    try:
        delete(**name)
    except NotFound:
        return
