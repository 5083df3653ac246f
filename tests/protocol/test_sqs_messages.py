"""Messages of standard queues as boto3 sees them; boto3 itself checks the MD5s of bodies and attributes."""

from time import monotonic, time
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.protocol.conftest import Call, MakeQueue
from tests.services.sqs_server import SqsServer, bodies, counts, receive

MIB = 1024 * 1024
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "text": {"DataType": "String", "StringValue": "grüße 🎉"},
    "price": {"DataType": "Number.cents", "StringValue": "-12.50"},
    "price.old": {"DataType": "Number", "StringValue": "1e3"},
    "blob": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff\x89PNG"},
}


def code_of(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


def test_a_message_goes_round(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    before_ms = int(time() * 1000) - 1
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    sent = client.send_message(
        QueueUrl=url, MessageBody="grüße\t🎉\n", MessageAttributes=ATTRIBUTES, MessageSystemAttributes=trace
    )
    assert sent["MD5OfMessageAttributes"]
    assert sent["MD5OfMessageSystemAttributes"]
    assert "SequenceNumber" not in sent
    (message,) = receive(client, url)
    assert message["MessageId"] == sent["MessageId"]
    assert message["Body"] == "grüße\t🎉\n"
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    system = message["Attributes"]
    assert system.pop("AWSTraceHeader") == trace["AWSTraceHeader"]["StringValue"]
    assert before_ms <= int(system.pop("SentTimestamp")) <= int(system.pop("ApproximateFirstReceiveTimestamp"))
    assert system == {"SenderId": "anonymous", "ApproximateReceiveCount": "1"}
    assert counts(client, url) == (0, 1, 0)
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert counts(client, url) == (0, 0, 0)


def test_what_is_not_asked_for_is_not_told(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)

    def asked(**parameters: Any) -> dict[str, Any]:
        (message,) = client.receive_message(QueueUrl=url, VisibilityTimeout=0, **parameters)["Messages"]
        return {key: sorted(message[key]) for key in ("Attributes", "MessageAttributes") if key in message}

    client.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=ATTRIBUTES)
    assert asked() == {}
    assert asked(MessageAttributeNames=["text"]) == {"MessageAttributes": ["text"]}
    assert asked(MessageAttributeNames=["price.*", "unknown"]) == {"MessageAttributes": ["price", "price.old"]}
    assert asked(MessageAttributeNames=["unknown"]) == {}
    assert asked(MessageAttributeNames=[".*"]) == {"MessageAttributes": sorted(ATTRIBUTES)}
    assert asked(AttributeNames=["SenderId"]) == {"Attributes": ["SenderId"]}
    assert asked(MessageSystemAttributeNames=["ApproximateReceiveCount"]) == {"Attributes": ["ApproximateReceiveCount"]}


def test_batches(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    entries: list[dict[str, Any]] = [{"Id": f"m{number}", "MessageBody": f"body {number}"} for number in range(10)]
    entries[2]["MessageBody"] = "bell \x07"
    entries[5]["DelaySeconds"] = 901
    entries[7]["MessageAttributes"] = ATTRIBUTES
    sent = client.send_message_batch(QueueUrl=url, Entries=entries)
    assert [entry["Id"] for entry in sent["Successful"]] == ["m0", "m1", "m3", "m4", "m6", "m7", "m8", "m9"]
    failed = {entry["Id"]: (entry["Code"], entry["SenderFault"]) for entry in sent["Failed"]}
    assert failed == {"m2": ("InvalidMessageContents", True), "m5": ("InvalidParameterValue", True)}
    assert counts(client, url) == (8, 0, 0)
    messages = receive(client, url)
    assert {message["MessageId"] for message in messages} == {entry["MessageId"] for entry in sent["Successful"]}
    handles = [message["ReceiptHandle"] for message in messages]
    changes = [{"Id": str(number), "ReceiptHandle": handles[number], "VisibilityTimeout": 0} for number in range(4)]
    changes.append({"Id": "range", "ReceiptHandle": handles[4], "VisibilityTimeout": 43_201})
    changes.append({"Id": "handle", "ReceiptHandle": "nonsense", "VisibilityTimeout": 1})
    changed = client.change_message_visibility_batch(QueueUrl=url, Entries=changes)
    assert [entry["Id"] for entry in changed["Successful"]] == ["0", "1", "2", "3"]
    assert {entry["Id"]: entry["Code"] for entry in changed["Failed"]} == {
        "range": "InvalidParameterValue",
        "handle": "ReceiptHandleIsInvalid",
    }
    assert counts(client, url) == (4, 4, 0)
    deletions = [{"Id": str(number), "ReceiptHandle": handles[number]} for number in range(8)]
    deletions.append({"Id": "handle", "ReceiptHandle": "nonsense"})
    deleted = client.delete_message_batch(QueueUrl=url, Entries=deletions)
    assert [entry["Id"] for entry in deleted["Successful"]] == [str(number) for number in range(8)]
    assert [(entry["Id"], entry["Code"]) for entry in deleted["Failed"]] == [("handle", "ReceiptHandleIsInvalid")]
    assert counts(client, url) == (0, 0, 0)


@pytest.mark.parametrize(
    ("ids", "error"),
    [
        ([], "EmptyBatchRequest"),
        ([str(number) for number in range(11)], "TooManyEntriesInBatchRequest"),
        (["a", "b", "a"], "BatchEntryIdsNotDistinct"),
        (["a b"], "InvalidBatchEntryId"),
        (["a\nb"], "InvalidBatchEntryId"),
        (["a" * 81], "InvalidBatchEntryId"),
    ],
)
def test_batches_that_are_refused_whole(
    memory_sqs: SqsServer, make_queue: MakeQueue, ids: list[str], error: str
) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    calls: list[Call] = [
        lambda: client.send_message_batch(QueueUrl=url, Entries=[{"Id": id, "MessageBody": "x"} for id in ids]),
        lambda: client.delete_message_batch(QueueUrl=url, Entries=[{"Id": id, "ReceiptHandle": "x"} for id in ids]),
        lambda: client.change_message_visibility_batch(
            QueueUrl=url, Entries=[{"Id": id, "ReceiptHandle": "x", "VisibilityTimeout": 1} for id in ids]
        ),
    ]
    for call in calls:
        with pytest.raises(getattr(client.exceptions, error)):
            call()
    assert counts(client, url) == (0, 0, 0)


def test_the_largest_message(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "does not count"}}
    client.send_message(QueueUrl=url, MessageBody="x" * MIB, MessageSystemAttributes=trace)
    (message,) = receive(client, url)
    assert len(message["Body"]) == MIB
    with pytest.raises(ClientError, match="shorter than 1048576 bytes") as caught:
        client.send_message(QueueUrl=url, MessageBody="x" * (MIB + 1))
    assert code_of(caught.value) == "InvalidParameterValue"
    # Name, type and value of an attribute count; so do the bytes of a character, not the character.
    named = {"n": {"DataType": "String", "StringValue": "v"}}
    with pytest.raises(ClientError, match="shorter than"):
        client.send_message(QueueUrl=url, MessageBody="x" * (MIB - 7), MessageAttributes=named)
    client.send_message(QueueUrl=url, MessageBody="x" * (MIB - 8), MessageAttributes=named)
    with pytest.raises(ClientError, match="shorter than"):
        client.send_message(QueueUrl=url, MessageBody="ü" * (MIB // 2) + "x")


def test_the_sum_of_a_batch(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    halves = [{"Id": "a", "MessageBody": "x" * (MIB // 2)}, {"Id": "b", "MessageBody": "x" * (MIB // 2)}]
    assert len(client.send_message_batch(QueueUrl=url, Entries=halves)["Successful"]) == 2
    halves[1]["MessageBody"] += "x"
    with pytest.raises(client.exceptions.BatchRequestTooLong):
        client.send_message_batch(QueueUrl=url, Entries=halves)
    assert counts(client, url) == (2, 0, 0)


def test_a_smaller_maximum_size(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, MaximumMessageSize=1024)
    client.send_message(QueueUrl=url, MessageBody="x" * 1024)
    with pytest.raises(ClientError, match="shorter than 1024 bytes"):
        client.send_message(QueueUrl=url, MessageBody="x" * 1025)


@pytest.mark.parametrize("body", ["\x00", "a\x0bb", "\x1f", "\ufffe", "\uffff"])
def test_characters_that_are_refused(memory_sqs: SqsServer, make_queue: MakeQueue, body: str) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    with pytest.raises(client.exceptions.InvalidMessageContents):
        client.send_message(QueueUrl=url, MessageBody=body)


def test_half_a_surrogate_pair(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    body = f'{{"QueueUrl": "{url}", "MessageBody": "\\ud83d"}}'
    answer = memory_sqs.http("POST", "/", body, {"X-Amz-Target": "AmazonSQS.SendMessage"})
    assert answer.status == 400
    assert answer.json["__type"] in (
        "com.amazonaws.sqs#InvalidMessageContents",
        "com.amazon.coral.service#SerializationException",
    )


@pytest.mark.parametrize(
    "attributes",
    [
        {f"a{number}": {"DataType": "String", "StringValue": "x"} for number in range(11)},
        {"AWS.mine": {"DataType": "String", "StringValue": "x"}},
        {"a b": {"DataType": "String", "StringValue": "x"}},
        {"a": {"DataType": "Text", "StringValue": "x"}},
        {"a": {"DataType": "Number", "StringValue": "x"}},
        {"a": {"DataType": "String", "StringValue": ""}},
        {"a": {"DataType": "Binary", "StringValue": "x"}},
    ],
)
def test_attributes_that_are_refused(
    memory_sqs: SqsServer, make_queue: MakeQueue, attributes: dict[str, dict[str, str]]
) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    with pytest.raises(ClientError) as caught:
        client.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=attributes)
    assert code_of(caught.value) == "InvalidParameterValue"
    ten = dict(list(attributes.items())[:10])
    if len(attributes) > 10:
        client.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=ten)


@pytest.mark.parametrize(
    "parameters",
    [
        {"MaxNumberOfMessages": 0},
        {"MaxNumberOfMessages": 11},
        {"WaitTimeSeconds": 21},
        {"WaitTimeSeconds": -1},
        {"VisibilityTimeout": 43_201},
        {"ReceiveRequestAttemptId": "for FIFO queues only"},
    ],
)
def test_receives_that_are_refused(
    memory_sqs: SqsServer, make_queue: MakeQueue, parameters: dict[str, int | str]
) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    with pytest.raises(ClientError) as caught:
        client.receive_message(QueueUrl=url, **parameters)
    assert code_of(caught.value) == "InvalidParameterValue"


def test_visibility_timeout_runs_out(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, VisibilityTimeout=1)
    client.send_message(QueueUrl=url, MessageBody="twice")
    asked_s = monotonic()
    (first,) = receive(client, url)
    (second,) = receive(client, url, WaitTimeSeconds=20)
    assert monotonic() - asked_s >= 0.9
    assert second["MessageId"] == first["MessageId"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    first_times, times = (one["Attributes"]["ApproximateFirstReceiveTimestamp"] for one in (first, second))
    assert first_times == times
    # The first receiver's handle works too, as on AWS; deleting once more deletes nothing.
    client.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert counts(client, url) == (0, 0, 0)
    client.delete_message(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
    client.delete_message(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])


def test_a_late_delete_works(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    client.send_message(QueueUrl=url, MessageBody="late")
    (message,) = receive(client, url, VisibilityTimeout=0)
    assert counts(client, url) == (1, 0, 0)
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert counts(client, url) == (0, 0, 0)


def test_change_visibility(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    client.send_message(QueueUrl=url, MessageBody="mine")
    (message,) = receive(client, url, VisibilityTimeout=5)
    handle = message["ReceiptHandle"]
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=600)
    assert receive(client, url, WaitTimeSeconds=6) == []
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
    (again,) = receive(client, url)
    assert again["MessageId"] == message["MessageId"]
    with pytest.raises(client.exceptions.ReceiptHandleIsInvalid):
        client.change_message_visibility(QueueUrl=url, ReceiptHandle="nonsense", VisibilityTimeout=5)
    with pytest.raises(ClientError, match="VisibilityTimeout"):
        client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=43_201)


def test_a_handle_of_another_queue(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    mine, other = make_queue(client), make_queue(client)
    for url in (mine, other):
        client.send_message(QueueUrl=url, MessageBody="x")
    (message,) = receive(client, mine)
    receive(client, other)
    with pytest.raises(client.exceptions.ReceiptHandleIsInvalid):
        client.delete_message(QueueUrl=other, ReceiptHandle=message["ReceiptHandle"])
    with pytest.raises(client.exceptions.ReceiptHandleIsInvalid):
        client.change_message_visibility(QueueUrl=other, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)


def test_delays(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, DelaySeconds=900)
    client.send_message(QueueUrl=url, MessageBody="the queue's delay")
    client.send_message(QueueUrl=url, MessageBody="its own", DelaySeconds=1)
    client.send_message(QueueUrl=url, MessageBody="none", DelaySeconds=0)
    assert counts(client, url) == (1, 0, 2)
    assert bodies(receive(client, url)) == ["none"]
    assert bodies(receive(client, url, WaitTimeSeconds=5)) == ["its own"]
    with pytest.raises(ClientError, match="DelaySeconds"):
        client.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=901)


def test_a_standard_queue_takes_groups_that_order_nothing(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    for number in range(2):
        client.send_message(QueueUrl=url, MessageBody=str(number), MessageGroupId="tenant")
    assert len(receive(client, url, 1) + receive(client, url, 1)) == 2


def test_any_handle_of_a_standard_queue_works_while_its_message_exists(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    client.send_message(QueueUrl=url, MessageBody="m")
    handles = [receive(client, url, VisibilityTimeout=0)[0]["ReceiptHandle"] for _ in range(3)]
    # The message waits: an old handle hides it, and shows it again.
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=handles[0], VisibilityTimeout=600)
    assert receive(client, url) == []
    assert counts(client, url) == (0, 1, 0)
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=handles[1], VisibilityTimeout=0)
    (message,) = receive(client, url)
    assert message["Attributes"]["ApproximateReceiveCount"] == "4"
    # It is in flight under another handle: an old one deletes it.
    client.delete_message(QueueUrl=url, ReceiptHandle=handles[0])
    assert counts(client, url) == (0, 0, 0)
    for handle in [*handles, message["ReceiptHandle"]]:
        client.delete_message(QueueUrl=url, ReceiptHandle=handle)
