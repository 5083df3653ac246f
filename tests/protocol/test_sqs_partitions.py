"""Partitioned FIFO queues over the wire: validation, routing, receiving, placement in several databases."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.protocol.conftest import Call, MakeQueue
from tests.services.sqs_server import SqsServer, bodies, counts, drain, receive, running


def send(client: Any, url: str, group: str, body: str) -> str:
    answer = client.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=body)
    return str(answer["SequenceNumber"])


def shown(client: Any, url: str) -> tuple[str, str, str]:
    attributes = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All", "PartitionCount"])["Attributes"]
    return attributes["PartitionCount"], attributes["FifoThroughputLimit"], attributes["DeduplicationScope"]


HIGH = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, ("1", "perQueue", "queue")),
        ({"PartitionCount": "0"}, ("1", "perQueue", "queue")),
        ({"PartitionCount": "1"}, ("1", "perQueue", "queue")),
        ({"PartitionCount": "32"}, ("32", "perMessageGroupId", "messageGroup")),
        ({**HIGH, "PartitionCount": "4"}, ("4", "perMessageGroupId", "messageGroup")),
        (HIGH, ("1", "perMessageGroupId", "messageGroup")),
        ({"DeduplicationScope": "messageGroup"}, ("1", "perQueue", "messageGroup")),
    ],
)
def test_settings_that_are_taken(
    memory_sqs: SqsServer, make_queue: MakeQueue, attributes: dict[str, str], expected: tuple[str, str, str]
) -> None:
    url = make_queue(memory_sqs.anyone, fifo=True, **attributes)
    assert shown(memory_sqs.anyone, url) == expected


@pytest.mark.parametrize(
    ("attributes", "code", "named"),
    [
        ({"PartitionCount": "3"}, "InvalidAttributeValue", "PartitionCount"),
        ({"PartitionCount": "64"}, "InvalidAttributeValue", "PartitionCount"),
        ({"PartitionCount": "-2"}, "InvalidAttributeValue", "PartitionCount"),
        ({"PartitionCount": "2.0"}, "InvalidAttributeValue", "PartitionCount"),
        ({"PartitionCount": "two"}, "InvalidAttributeValue", "PartitionCount"),
        ({"PartitionCount": ""}, "InvalidAttributeValue", "PartitionCount"),
        ({"FifoThroughputLimit": "perServer"}, "InvalidAttributeValue", "FifoThroughputLimit"),
        ({"DeduplicationScope": "galaxy"}, "InvalidAttributeValue", "DeduplicationScope"),
        ({"PartitionCount": "2", "DeduplicationScope": "queue"}, "InvalidParameterValue", "PartitionCount"),
    ],
)
def test_settings_that_are_refused(memory_sqs: SqsServer, attributes: dict[str, str], code: str, named: str) -> None:
    client = memory_sqs.anyone
    with pytest.raises(ClientError, match=named) as caught:
        client.create_queue(QueueName="never.fifo", Attributes={"FifoQueue": "true", **attributes})
    assert caught.value.response["Error"]["Code"] == code
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.get_queue_url(QueueName="never.fifo")


@pytest.mark.parametrize("name", ["PartitionCount", "FifoThroughputLimit", "DeduplicationScope"])
def test_standard_queues_have_none_of_it(memory_sqs: SqsServer, make_queue: MakeQueue, name: str) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    value = {"PartitionCount": "2"}.get(name) or HIGH[name]
    calls: tuple[Call, ...] = (
        lambda: client.create_queue(QueueName="never-made", Attributes={name: value}),
        lambda: client.set_queue_attributes(QueueUrl=url, Attributes={name: value}),
    )
    refusal = "InvalidAttributeValue" if name == "PartitionCount" else "InvalidAttributeName"
    for call in calls:
        with pytest.raises(getattr(client.exceptions, refusal), match=name):
            call()


def test_settings_are_fixed(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True, PartitionCount=4)
    for name, value in {
        "PartitionCount": "8",
        "FifoThroughputLimit": "perQueue",
        "DeduplicationScope": "queue",
    }.items():
        with pytest.raises(client.exceptions.InvalidAttributeValue, match=name):
            client.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "99", name: value})
    client.set_queue_attributes(QueueUrl=url, Attributes={**HIGH, "PartitionCount": "4"})
    assert shown(client, url) == ("4", "perMessageGroupId", "messageGroup")
    timeout = client.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
    assert timeout == {"VisibilityTimeout": "30"}
    one = make_queue(client, fifo=True)
    client.set_queue_attributes(QueueUrl=one, Attributes={"PartitionCount": "0"})
    client.set_queue_attributes(QueueUrl=one, Attributes={"PartitionCount": "1"})


def test_messages_go_where_their_group_says(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True, PartitionCount=4)
    name = url.rpartition("/")[2]
    groups = {"a": 0, "alpha": 3, "beta": 3, "gamma": 2, "delta": 1, "g0": 2, "g1": 1, "g2": 0, "g3": 3}
    for group in groups:
        send(client, url, group, f"body-of-{group}")
    expected = {(str(index),): float(list(groups.values()).count(index)) for index in range(4)}
    assert sqs.metrics("sqs_partition_messages_total", queue=name, action="send") == expected
    assert sqs.metrics("sqs_queue_messages", queue=name, state="visible") == {(): 9.0}
    assert counts(client, url) == (9, 0, 0)
    messages = receive(client, url)
    assert sorted(bodies(messages)) == sorted(f"body-of-{group}" for group in groups)
    assert counts(client, url) == (0, 9, 0)
    for message in messages:
        client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert sqs.metrics("sqs_partition_messages_total", queue=name, action="receive") == expected
    assert sqs.metrics("sqs_partition_messages_total", queue=name, action="delete") == expected
    assert counts(client, url) == (0, 0, 0)


def test_every_group_keeps_its_order(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True, PartitionCount=8)
    sent = [f"g{group}:{number:02}" for number in range(10) for group in range(10)]
    for start in range(0, 100, 10):
        entries = [
            {"Id": f"e{n}", "MessageBody": b, "MessageGroupId": b.partition(":")[0], "MessageDeduplicationId": b}
            for n, b in enumerate(sent[start : start + 10])
        ]
        answer = client.send_message_batch(QueueUrl=url, Entries=entries)
        assert {entry["Id"] for entry in answer["Successful"]} == {f"e{n}" for n in range(10)}
    messages = drain(client, url, 100)
    assert sorted(bodies(messages)) == sorted(sent)
    for group in {message["Attributes"]["MessageGroupId"] for message in messages}:
        of_group = [one for one in messages if one["Attributes"]["MessageGroupId"] == group]
        assert bodies(of_group) == sorted(bodies(of_group))
        numbers = [one["Attributes"]["SequenceNumber"] for one in of_group]
        assert numbers == sorted(set(numbers))


def test_a_purge_covers_all_partitions(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True, PartitionCount=8)
    for number in range(16):
        send(client, url, f"g{number}", str(number))
    receive(client, url)
    client.purge_queue(QueueUrl=url)
    assert counts(client, url) == (0, 0, 0)
    with pytest.raises(client.exceptions.PurgeQueueInProgress):
        client.purge_queue(QueueUrl=url)
    send(client, url, "g0", "after")
    assert bodies(receive(client, url)) == ["after"]


def test_handles_name_their_partition(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    many, one = make_queue(client, fifo=True, PartitionCount=4), make_queue(client, fifo=True)
    send(client, many, "alpha", "x")
    (message,) = receive(client, many)
    with pytest.raises(client.exceptions.ReceiptHandleIsInvalid):
        client.delete_message(QueueUrl=one, ReceiptHandle=message["ReceiptHandle"])
    client.delete_message(QueueUrl=many, ReceiptHandle=message["ReceiptHandle"])


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize(
    ("offset", "length", "changed"),
    [
        (0, 2, "01"),  # of an earlier version
        (0, 2, "03"),
        (2, 2, "07"),  # of a partition that does not exist
        (4, 16, "00000000deadbeef"),  # of another incarnation
        (0, 0, "00"),
    ],
)
def test_handles_that_are_not_of_this_queue(
    memory_sqs: SqsServer, make_queue: MakeQueue, fifo: bool, offset: int, length: int, changed: str
) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, fifo=fifo)
    if fifo:
        send(client, url, "g", "x")
    else:
        client.send_message(QueueUrl=url, MessageBody="x")
    handle = receive(client, url)[0]["ReceiptHandle"]
    wrong = handle[:offset] + changed + handle[offset + length :]
    assert wrong != handle
    said = set()
    calls: tuple[Call, ...] = (
        lambda: client.delete_message(QueueUrl=url, ReceiptHandle=wrong),
        lambda: client.change_message_visibility(QueueUrl=url, ReceiptHandle=wrong, VisibilityTimeout=0),
    )
    for call in calls:
        with pytest.raises(client.exceptions.ReceiptHandleIsInvalid) as caught:
            call()
        said.add(caught.value.response["Error"]["Message"])
    assert said == {f'The input receipt handle "{wrong}" is not a valid receipt handle.'}
    assert counts(client, url) == (0, 1, 0)
    client.delete_message(QueueUrl=url, ReceiptHandle=handle)


# Placement


def databases(directory: Path) -> dict[str, str]:
    return {"PENSTOCK_SQS__DATABASES": f"a={directory / 'a.db'},b={directory / 'b.db'}"}


def test_partitions_placed_in_two_databases(tmp_path: Path) -> None:
    options = ("--data", str(tmp_path / "home"), "--fifo-partition-map", "orders.fifo:4=a,a,b,b")
    attributes = {"FifoQueue": "true", "PartitionCount": "4"}
    with running(tmp_path, *options, environment=databases(tmp_path)) as server:
        client = server.anyone
        url = client.create_queue(QueueName="orders.fifo", Attributes=attributes, tags={"team": "a"})["QueueUrl"]
        for number in range(12):
            send(client, url, f"g{number % 4}", str(number))
        (first, *_) = receive(client, url, 1)
        client.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        assert server.stop() == 0
        server.start()
        assert client.create_queue(QueueName="orders.fifo", Attributes=attributes)["QueueUrl"] == url
        assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "a"}
        assert counts(client, url) == (11, 0, 0)
        left = bodies(drain(client, url, 11))
        assert sorted([first["Body"], *left], key=int) == [str(number) for number in range(12)]
        for group in range(4):
            of_group = [int(body) for body in left if int(body) % 4 == group]
            assert of_group == sorted(of_group)
        client.delete_queue(QueueUrl=url)
        assert server.stop() == 0
        server.start()
        with pytest.raises(client.exceptions.QueueDoesNotExist):
            client.get_queue_url(QueueName="orders.fifo")
        client.create_queue(QueueName="orders.fifo", Attributes=attributes)
        assert counts(client, url) == (0, 0, 0)


def test_a_queue_whose_count_is_not_the_maps(tmp_path: Path) -> None:
    options = ("--memory", "--fifo-partition-map", "orders.fifo:4=a,a,b,b")
    with running(tmp_path, *options, environment=databases(tmp_path)) as server:
        with pytest.raises(ClientError, match="places 4 partitions") as caught:
            server.anyone.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true", "PartitionCount": "2"})
        assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("orders.fifo:4=a,b", "names 2 databases for 4 partitions"),
        ("orders.fifo:2=a,c", "names the database 'c', which is not configured; known are a, b"),
        ("orders:2=a,b", "is not a partition map entry; write it as orders.fifo:4=a,a,b,b"),
    ],
)
def test_maps_that_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    server = SqsServer(tmp_path, "--memory", "--fifo-partition-map", text, environment=databases(tmp_path))
    said = server.refusal()
    assert sentence in " ".join(said.split())
    assert "Traceback" not in said


def test_a_database_that_is_no_longer_configured(tmp_path: Path) -> None:
    options = ("--data", str(tmp_path / "home"))
    placed = (*options, "--fifo-partition-map", "orders.fifo:2=a,b")
    with running(tmp_path, *placed, environment=databases(tmp_path)) as server:
        attributes = {"FifoQueue": "true", "PartitionCount": "2"}
        server.anyone.create_queue(QueueName="orders.fifo", Attributes=attributes)
    only_a = {"PENSTOCK_SQS__DATABASES": f"a={tmp_path / 'a.db'}"}
    said = SqsServer(tmp_path, *options, environment=only_a).refusal()
    assert "the database 'b', which is not configured" in " ".join(said.split())
    assert "Traceback" not in said
