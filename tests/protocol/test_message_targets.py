"""`penstock up` with subscriptions that deliver to topics and queues: Google's client and boto3 get the events."""

import json
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from penstock.client import Event, Penstock
from tests.rigs.penstock_process import Machine
from tests.services.pubsub_server import Clients

pytestmark = pytest.mark.xdist_group("up")
KEYS = ("order-1", "order-2")


@pytest.fixture(scope="module")
def sqs(machine: Machine) -> Any:
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return boto3.client("sqs", endpoint_url=machine.addresses["sqs"], region_name="us-east-1", **keys)


def received(sqs: Any, name: str, wanted: int) -> list[Any]:
    """The next messages of a queue; they are deleted."""
    url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"} if name.endswith(".fifo") else {})[
        "QueueUrl"
    ]
    found: list[Any] = []
    while len(found) < wanted:
        answer = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20, MessageSystemAttributeNames=["All"]
        )
        assert answer.get("Messages"), found
        for message in answer["Messages"]:
            found.append(message)
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found


def publish(machine: Machine, event_type: str, count: int) -> None:
    with Penstock(machine.addresses["api"]) as penstock:
        for number in range(count):
            for key in KEYS:
                penstock.publish(Event(type=event_type, key=key, data=number))


def test_a_fifo_queue_gets_events_in_order_of_their_keys(machine: Machine, sqs: Any) -> None:
    machine.penstock("subscriptions", "create", "queue", "--pattern", "queued:**", "--target", "sqs:orders.fifo")

    publish(machine, "queued:placed", 2)

    messages = received(sqs, "orders.fifo", 4)
    for key in KEYS:
        events = [json.loads(each["Body"]) for each in messages if each["Attributes"]["MessageGroupId"] == key]
        assert [(event["partitionkey"], event["type"], event["data"]) for event in events] == [
            (key, "queued:placed", 0),
            (key, "queued:placed", 1),
        ]
    jobs = json.loads(machine.penstock("jobs", "list", "--subscription", "queue", "--json"))["jobs"]
    assert len(jobs) == 4


def test_a_topic_gets_events_in_order_of_their_keys(machine: Machine) -> None:
    clients = Clients(machine.addresses["pubsub"])
    topic, subscription = "projects/penstock/topics/shipping", "projects/penstock/subscriptions/shipping"
    clients.publisher.create_topic(name=topic)
    clients.subscriber.create_subscription(
        request={"name": subscription, "topic": topic, "enable_message_ordering": True}
    )
    machine.penstock("subscriptions", "create", "topic", "--pattern", "sent:**", "--target", "topic:shipping")

    publish(machine, "sent:placed", 2)

    messages: list[Any] = []
    while len(messages) < 4:
        pulled = clients.subscriber.pull(subscription=subscription, max_messages=10, timeout=30).received_messages
        assert pulled, messages
        messages += [each.message for each in pulled]
        clients.subscriber.acknowledge(subscription=subscription, ack_ids=[each.ack_id for each in pulled])
    clients.close()
    for key in KEYS:
        assert [message.data for message in messages if message.ordering_key == key] == [b"0", b"1"]


def test_dead_letters_go_to_a_queue(machine: Machine, sqs: Any) -> None:
    machine.penstock(
        *("subscriptions", "create", "refused", "--pattern", "refused:**", "--target", "http://127.0.0.1:1/"),
        *("--retry", "", "--dead-letter-topic", "sqs:lost"),
    )

    machine.penstock("publish", "refused:placed", "--data", '{"total": 5}')

    (message,) = received(sqs, "lost", 1)
    assert json.loads(message["Body"])["data"] == {"total": 5}


def test_a_test_event_reaches_a_queue(machine: Machine, sqs: Any) -> None:
    machine.penstock("subscriptions", "create", "tried", "--pattern", "tried:**", "--target", "sqs:tried")

    assert "yes" in machine.penstock("subscriptions", "test", "tried")

    (message,) = received(sqs, "tried", 1)
    assert json.loads(message["Body"])["type"] == "penstock:test"
