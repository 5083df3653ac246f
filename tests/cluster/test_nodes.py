"""Two nodes on one database: any of them serves any queue, and one may end at any moment."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster.nodes.registry import Registry
from penstock.cluster.nodes.spread import Node
from tests.cluster.rig import ClusterNode, nodes
from tests.rigs.penstock_process import wait_until
from tests.services.sqs_server import drain

PARTITIONED = {"FifoQueue": "true", "PartitionCount": "2"}


@pytest.fixture
def pair(tmp_path: Path, postgres_database: str) -> Iterator[list[ClusterNode]]:
    with nodes(tmp_path, [postgres_database] * 2) as started:
        yield started


def test_any_node_serves_any_queue(pair: list[ClusterNode], postgres_database: str) -> None:
    send_here_receive_there(pair)
    wait_on_the_other_node(pair)
    create_with_partitions_only_if_every_node_can(pair, postgres_database)


def send_here_receive_there(pair: list[ClusterNode]) -> None:
    owner, other = pair
    url = other.anyone.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    entries = [
        {"Id": str(n), "MessageBody": str(n), "MessageGroupId": "g", "MessageDeduplicationId": str(n)} for n in range(4)
    ]
    sent = other.anyone.send_message_batch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in sent["Successful"]] == list("0123")
    received = other.anyone.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])["Messages"]
    assert [message["Body"] for message in received] == list("0123")
    owner.anyone.delete_message(QueueUrl=url, ReceiptHandle=received[0]["ReceiptHandle"])
    other.anyone.delete_message(QueueUrl=url, ReceiptHandle=received[1]["ReceiptHandle"])
    assert other.anyone.list_queues()["QueueUrls"] == [url]
    for node in pair:
        attributes = node.anyone.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert attributes["ApproximateNumberOfMessagesNotVisible"] == "2"
    with pytest.raises(other.anyone.exceptions.QueueDoesNotExist):
        other.anyone.receive_message(QueueUrl=url + "x")
    assert [each["name"] for each in other.http("GET", "/admin/queues").json["queues"]] == ["orders.fifo"]
    assert other.cluster()["shards"] == owner.cluster()["shards"]
    assert {node["name"] for node in other.cluster()["nodes"]} == {"node-0", "node-1"}


def wait_on_the_other_node(pair: list[ClusterNode]) -> None:
    owner, other = pair
    url = owner.anyone.create_queue(QueueName="q", Attributes={"ReceiveMessageWaitTimeSeconds": "20"})["QueueUrl"]
    answers: list[str] = []

    def receive() -> None:
        messages = other.anyone.receive_message(QueueUrl=url).get("Messages", [])
        answers.extend(message["Body"] for message in messages)

    thread = threading.Thread(target=receive)
    thread.start()
    wait_until(lambda: owner.http("GET", "/admin/queues/q").json["waiting_receivers"] == 1)
    owner.anyone.send_message(QueueUrl=url, MessageBody="x")
    thread.join(60)
    assert answers == ["x"]
    assert other.anyone.receive_message(QueueUrl=url, WaitTimeSeconds=0).get("Messages") is None


def create_with_partitions_only_if_every_node_can(pair: list[ClusterNode], database: str) -> None:
    node = pair[1]
    registry = Registry(database, "sqs")
    older = Node("older", "1", "http://127.0.0.1:9")
    registry.renew(older, 600)
    registry.announce()
    wait_until(lambda: all(len(each.cluster()["nodes"]) == 3 for each in pair))
    refused = node.ask("CreateQueue", QueueName="wide.fifo", Attributes=PARTITIONED)
    assert (refused.status, refused.json["message"]) == (503, "Not every node can serve a queue with partitions.")
    registry.leave("1")
    wait_until(lambda: all(len(each.cluster()["nodes"]) == 2 for each in pair))
    assert node.ask("CreateQueue", QueueName="wide.fifo", Attributes=PARTITIONED).status == 200
    wait_until(lambda: node.cluster()["shards"][0]["needs"] == ["htfifo"])
    registry.renew(older, 600)
    assert node.ask("CreateQueue", QueueName="wide.fifo", Attributes=PARTITIONED).status == 200
    registry.leave("1")
    registry.close()


def test_the_other_node_takes_over_after_a_stop_and_after_a_kill(pair: list[ClusterNode]) -> None:
    first, second = pair
    url = first.anyone.create_queue(QueueName="q")["QueueUrl"]
    first.anyone.send_message(QueueUrl=url, MessageBody="leased")
    (message,) = second.anyone.receive_message(QueueUrl=url, VisibilityTimeout=600)["Messages"]
    assert first.stop() == 0
    assert second.anyone.receive_message(QueueUrl=url).get("Messages") is None
    second.anyone.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert second.owner() == "node-1"
    first.start()
    for number in range(20):
        pair[number % 2].anyone.send_message(QueueUrl=url, MessageBody=str(number))
    assert first.owner() == "node-1"
    (held,) = first.anyone.receive_message(QueueUrl=url, VisibilityTimeout=600)["Messages"]
    (extended,) = second.anyone.receive_message(QueueUrl=url, VisibilityTimeout=1)["Messages"]
    first.anyone.change_message_visibility(QueueUrl=url, ReceiptHandle=extended["ReceiptHandle"], VisibilityTimeout=600)
    second.kill()
    wait_until(lambda: first.ask("GetQueueUrl", QueueName="q").status == 200)
    others = sorted(int(message["Body"]) for message in drain(first.anyone, url, 18))
    assert others == sorted(set(range(20)) - {int(held["Body"]), int(extended["Body"])})
    assert first.anyone.receive_message(QueueUrl=url).get("Messages") is None
    for message in (held, extended):
        first.anyone.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    attributes = first.anyone.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes["ApproximateNumberOfMessagesNotVisible"] == "0"
    assert first.owner() == "node-0"
