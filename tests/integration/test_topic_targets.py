"""Subscriptions that deliver to Pub/Sub topics: from an event to a message that Google's client pulls."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.dispatch import dispatch_rig
from tests.rigs.job_database import Connect
from tests.services.pubsub_server import Clients, PubsubServer, clients_of, running

numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubsubServer]:
    with running(tmp_path_factory.mktemp("pubsub"), "--memory") as started:
        yield started


@pytest.fixture(scope="module")
def clients(server: PubsubServer) -> Iterator[Clients]:
    with clients_of(server) as made:
        yield made


def followed(clients: Clients) -> tuple[str, str]:
    """A topic, and a subscription of it."""
    name = f"shipping-{next(numbers)}"
    topic, subscription = f"projects/penstock/topics/{name}", f"projects/penstock/subscriptions/{name}"
    clients.publisher.create_topic(name=topic)
    clients.subscriber.create_subscription(
        request={"name": subscription, "topic": topic, "enable_message_ordering": True}
    )
    return name, subscription


def pulled(clients: Clients, subscription: str, wanted: int) -> list[Any]:
    """The next messages, in the order in which they come."""
    found: list[Any] = []
    while len(found) < wanted:
        received = clients.subscriber.pull(subscription=subscription, max_messages=100, timeout=30).received_messages
        assert received, found
        found += [each.message for each in received]
        clients.subscriber.acknowledge(subscription=subscription, ack_ids=[each.ack_id for each in received])
    return found


async def test_events_arrive_as_messages_in_order_of_their_keys(
    connect: Connect, server: PubsubServer, clients: Clients
) -> None:
    name, subscription = followed(clients)
    async with dispatch_rig(connect(), topics=server.address) as rig:
        await rig.subscribe("shipping", target=f"topic:{name}")
        for number in range(3):
            await rig.publish(number, partitionkey="order-1", data={"number": number}, region="eu")
        jobs = await rig.dispatch_all()

        messages = pulled(clients, subscription, 3)

        assert [message.data for message in messages] == [b'{"number":0}', b'{"number":1}', b'{"number":2}']
        assert [message.attributes["webhook-id"] for message in messages] == jobs
        assert {message.ordering_key for message in messages} == {"order-1"}
        attributes = dict(messages[0].attributes)
        assert attributes["content-type"] == "application/json"
        assert (attributes["ce-specversion"], attributes["ce-partitionkey"]) == ("1.0", "order-1")
        assert (attributes["ce-type"], attributes["ce-region"]) == ("orders:created", "eu")
        assert {(await rig.job(job_id))["status"] for job_id in jobs} == {"COMPLETED"}
        assert rig.receiver.requests == []


async def test_a_test_event_goes_to_the_topic_too(connect: Connect, server: PubsubServer, clients: Clients) -> None:
    name, subscription = followed(clients)
    async with dispatch_rig(connect(), topics=server.address) as rig:
        subscription_id, _ = await rig.subscribe("shipping", target=f"topic:projects/penstock/topics/{name}")

        tried = await rig.ask("POST", f"/api/v1/subscriptions/{subscription_id}/test")

        assert (tried.body["delivered"], tried.body["error"]) == (True, None)
        (message,) = pulled(clients, subscription, 1)
        assert message.attributes["ce-type"] == "penstock:test"


async def test_without_a_server_the_job_is_tried_again_and_says_why(connect: Connect, tmp_path: Path) -> None:
    async with dispatch_rig(connect()) as rig:
        await rig.subscribe("shipping", target="topic:orders")
        await rig.publish()

        (job_id,) = await rig.dispatch_all()

        job = await rig.job(job_id)
        assert (job["status"], "this process knows no Pub/Sub server" in job["lastError"]) == ("PENDING", True)
        refused = await rig.ask(
            "POST", "/api/v1/subscriptions", {"name": "x", "pattern": "**", "target": "topic:no topic"}
        )
        assert (refused.status, "names no topic" in refused.body["detail"]) == (400, True)


async def test_an_event_does_not_go_back_to_the_topic_that_it_came_from(connect: Connect, server: PubsubServer) -> None:
    async with dispatch_rig(connect(), topics=server.address) as rig:
        await rig.subscribe("loop", target="topic:orders")
        await rig.publish(source="//pubsub.googleapis.com/projects/penstock/topics/orders")

        (job_id,) = await rig.dispatch_all()

        job = await rig.job(job_id)
        assert (job["status"], "would feed itself" in job["lastError"]) == ("ERROR", True)
