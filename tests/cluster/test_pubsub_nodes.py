"""Pub/Sub on two nodes: any of them answers any call, and one may end at any moment."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.rig import started_pair
from tests.rigs.penstock_process import wait_until
from tests.services.pubsub_server import PROJECT, Clients, PubsubServer, clients_of

TOPIC, SUBSCRIPTION = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/billing"


class PubsubNode(PubsubServer):
    """`penstock serve pubsub --node NAME`."""

    def __init__(self, directory: Path, name: str, database: str) -> None:
        options = ("--database", database, "--node", name, "--node-port", "0")
        super().__init__(directory / name, *options)

    def is_owner(self) -> bool:
        """Whether it owns the topics."""
        return "pubsub_node_shards 1.0" in self.get("/metrics")


@pytest.fixture
def pair(tmp_path: Path, postgres_database: str) -> Iterator[tuple[PubsubNode, PubsubNode]]:
    first, second = (PubsubNode(tmp_path, name, postgres_database) for name in "ab")
    with started_pair(first, second, first.is_owner):
        yield first, second


@pytest.fixture
def clients(pair: tuple[PubsubNode, PubsubNode]) -> Iterator[tuple[Clients, Clients]]:
    with clients_of(pair[0]) as first, clients_of(pair[1]) as second:
        yield first, second


def publish(clients: Clients, *texts: str) -> None:
    for text in texts:
        clients.publisher.publish(TOPIC, text.encode(), ordering_key="k").result(60)


def take_one(clients: Clients) -> bytes:
    """Pull and acknowledge the next message of the key."""
    (received,) = clients.subscriber.pull(subscription=SUBSCRIPTION, max_messages=1, timeout=60).received_messages
    clients.subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[received.ack_id])
    return bytes(received.message.data)


def test_any_node_publishes_pulls_and_streams(
    pair: tuple[PubsubNode, PubsubNode], clients: tuple[Clients, Clients]
) -> None:
    (owner, other), (at_owner, at_other) = pair, clients
    at_other.publisher.create_topic(name=TOPIC)
    at_other.subscriber.create_subscription(
        request={"name": SUBSCRIPTION, "topic": TOPIC, "enable_message_ordering": True}
    )
    publish(at_other, "1", "2")
    publish(at_owner, "3")
    assert [take_one(at_other) for _ in range(3)] == [b"1", b"2", b"3"]
    with pytest.raises(Exception, match="missing"):
        at_other.publisher.get_topic(topic=f"{PROJECT}/topics/missing")

    streamed: list[bytes] = []
    enough = threading.Event()

    def take(message: Any) -> None:
        streamed.append(message.data)
        message.ack()
        if len(streamed) == 20:
            enough.set()

    pulling = at_other.subscriber.subscribe(SUBSCRIPTION, take)
    publish(at_owner, *map(str, range(20)))
    assert enough.wait(60)
    pulling.cancel()
    pulling.result(60)
    assert streamed == [str(number).encode() for number in range(20)]
    assert (owner.is_owner(), other.is_owner()) == (True, False)
    assert "pubsub_node_hops_total 0.0" not in other.get("/metrics")


def test_topics_and_streams_go_on_after_a_stop_and_after_a_kill(
    pair: tuple[PubsubNode, PubsubNode], clients: tuple[Clients, Clients]
) -> None:
    (first, second), (at_first, at_second) = pair, clients
    at_first.publisher.create_topic(name=TOPIC)
    at_first.subscriber.create_subscription(
        request={"name": SUBSCRIPTION, "topic": TOPIC, "enable_message_ordering": True}
    )
    streamed: list[bytes] = []

    def take(message: Any) -> None:
        streamed.append(message.data)
        message.ack()

    pulling = at_second.subscriber.subscribe(SUBSCRIPTION, take)
    publish(at_second, "1")
    wait_until(lambda: b"1" in streamed)
    assert first.stop() == 0
    publish(at_second, "2")
    assert second.is_owner()
    wait_until(lambda: b"2" in streamed)
    first.start()
    publish(at_first, "3")
    pulling.cancel()
    pulling.result(60)
    second.kill()
    publish(at_first, "4")
    wait_until(first.is_owner)
    # What was acknowledged stays so; the last ones may come again.
    left: list[bytes] = []
    while b"4" not in left:
        left.append(take_one(at_first))
    assert b"1" not in left
    assert {b"1", b"2", b"3", b"4"} == {*streamed, *left}
