"""The admin endpoints that show a queue whole, partition by partition, and end it if it is still as it was seen."""

import json
from typing import Any

import pytest

from tests.protocol.conftest import MakeQueue
from tests.services.sqs_server import SqsServer, counts, receive

GROUPS = ("a", "alpha", "beta", "gamma", "delta")


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def get(server: SqsServer, path: str) -> Any:
    answer = server.http("GET", f"/admin/queues/{path}")
    assert answer.status == 200, answer.body
    return answer.json


def send(client: Any, url: str, group: str, number: int, **fields: Any) -> str:
    answer = client.send_message(
        QueueUrl=url,
        MessageBody=f"{group}:{number} ü",
        MessageGroupId=group,
        MessageDeduplicationId=f"{group}-{number}",
        **fields,
    )
    return str(answer["MessageId"])


def test_a_partition_is_shown_whole_and_in_order(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True, PartitionCount=4)
    sent = {send(client, url, group, number) for number in range(6) for group in GROUPS}
    receive(client, url, 3)
    before = counts(client, url)
    name, seen = name_of(url), []
    for partition in range(4):
        after: int | None = 0
        of_partition: list[dict[str, Any]] = []
        while after is not None:
            page = get(sqs, f"{name}/partitions/{partition}/messages?after={after}&limit=4")
            assert len(page["messages"]) <= 4
            of_partition += page["messages"]
            after = page["after"]
        sequences = [message["sequence"] for message in of_partition]
        assert sequences == sorted(set(sequences))
        for group in GROUPS:
            numbers = [message["dedup_id"] for message in of_partition if message["group"] == group]
            assert numbers in ([], [f"{group}-{number}" for number in range(6)])
        seen += of_partition
    assert {message["message_id"] for message in seen} == sent
    assert len(seen) == len(sent)
    assert counts(client, url) == before
    assert {message["state"] for message in seen} == {"leased", "waiting"}
    assert {message["body"] for message in seen} == {f"{group}:{number} ü" for group in GROUPS for number in range(6)}


def test_attributes_are_shown_as_they_were_sent(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, fifo=True)
    attributes = {
        "t": {"DataType": "String.label", "StringValue": "text"},
        "n": {"DataType": "Number", "StringValue": "7"},
        "b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5e1b4151-5ac6c58"}}
    send(client, url, "a", 1, MessageAttributes=attributes, MessageSystemAttributes=trace)
    (message,) = get(memory_sqs, f"{name_of(url)}/partitions/0/messages")["messages"]
    assert message["attributes"] == {
        "t": {"DataType": "String.label", "StringValue": "text"},
        "n": {"DataType": "Number", "StringValue": "7"},
        "b": {"DataType": "Binary", "BinaryValue": "AP8="},
    }
    assert message["trace"] == "Root=1-5e1b4151-5ac6c58"


def test_a_queue_is_retired_only_if_it_is_as_it_was_seen(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True, PartitionCount=2)
    path = f"/admin/queues/{name_of(url)}/retire"
    for number in range(4):
        send(client, url, "a", number)
    seen = get(sqs, f"{name_of(url)}/partitions")
    assert sum(partition["messages"] for partition in seen["partitions"]) == 4
    send(client, url, "b", 1)
    refused = sqs.http("POST", path, json.dumps(seen))
    assert (refused.status, refused.json["__type"]) == (400, "com.amazonaws.sqs#UnsupportedOperation")
    assert counts(client, url) == (5, 0, 0)
    seen = get(sqs, f"{name_of(url)}/partitions")
    # One that came and went leaves the count as it was, but not the sequence.
    (taken,) = receive(client, url, 1)
    assert sqs.http("POST", path, json.dumps(seen)).status == 400
    client.delete_message(QueueUrl=url, ReceiptHandle=taken["ReceiptHandle"])
    assert sqs.http("POST", path, json.dumps(seen)).status == 400
    seen = get(sqs, f"{name_of(url)}/partitions")
    assert sqs.http("POST", path, json.dumps(seen)).json == {"retired": name_of(url)}
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.get_queue_url(QueueName=name_of(url))


@pytest.mark.parametrize(
    "path",
    ["partitions/1/messages", "partitions/x/messages", "partitions/0/messages?limit=1001", "partitions/-1/messages"],
)
def test_what_cannot_be_shown(memory_sqs: SqsServer, make_queue: MakeQueue, path: str) -> None:
    url = make_queue(memory_sqs.anyone, fifo=True)
    answer = memory_sqs.http("GET", f"/admin/queues/{name_of(url)}/{path}")
    assert (answer.status, answer.json["__type"]) == (400, "com.amazon.coral.service#InvalidParameterValueException")


def test_a_standing_that_cannot_be_read(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone, fifo=True)
    assert memory_sqs.http("POST", f"/admin/queues/{name_of(url)}/retire", b"{").status == 400
