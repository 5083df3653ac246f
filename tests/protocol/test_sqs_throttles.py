"""Per-queue throttling over the wire: who may set it, what a refusal says, and how long a bucket lives."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.protocol.conftest import Call, MakeQueue
from tests.services.sqs_server import SqsServer, counts, running

# A refill this slow gives no token back while a test runs.
SLOW = "0.001"
SEND = {"ThrottleSendCapacity": "10", "ThrottleSendRefillPerSecond": SLOW}
RECV = {"ThrottleRecvCapacity": "10", "ThrottleRecvRefillPerSecond": SLOW}
DEFAULT = {"ThrottleDefaultCapacity": "10", "ThrottleDefaultRefillPerSecond": SLOW}


def granted(client: Any, url: str, most: int = 30) -> int:
    """How many sends go through before one is throttled."""
    for number in range(most):
        try:
            client.send_message(QueueUrl=url, MessageBody="x")
        except ClientError as error:
            if error.response["Error"]["Code"] != "Throttling":
                raise
            return number
    return most


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def test_a_client_principal_does_not_know_throttles(secured_sqs: SqsServer, make_queue: MakeQueue) -> None:
    admin, plain = secured_sqs.admin, secured_sqs.plain
    url = make_queue(admin, **SEND)
    calls: tuple[Call, ...] = (
        lambda: plain.set_queue_attributes(QueueUrl=url, Attributes=SEND),
        lambda: plain.create_queue(QueueName="throttled-by-a-client", Attributes=SEND),
    )
    for call in calls:
        with pytest.raises(plain.exceptions.InvalidAttributeName):
            call()
    seen = [
        client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        for client, names in ((admin, ["All"]), (plain, ["All"]))
    ]
    assert set(seen[0]) - set(seen[1]) >= set(SEND)
    assert not [name for name in seen[1] if name.startswith("Throttle")]
    assert granted(plain, url) == 10
    assert granted(admin, url) == 0
    sender = plain.receive_message(QueueUrl=url, AttributeNames=["SenderId"])["Messages"][0]
    assert sender["Attributes"] == {"SenderId": "a-client"}


@pytest.mark.parametrize(
    ("attributes", "named"),
    [
        ({"ThrottleSendCapacity": "10"}, "ThrottleSendRefillPerSecond"),
        ({"ThrottleSendRefillPerSecond": "10"}, "ThrottleSendCapacity"),
        ({**SEND, "ThrottleSendCapacity": "9.99"}, "ThrottleSendCapacity"),
        ({**RECV, "ThrottleRecvCapacity": "9"}, "ThrottleRecvCapacity"),
        ({**DEFAULT, "ThrottleDefaultCapacity": "9"}, "ThrottleDefaultCapacity"),
        ({**SEND, "ThrottleSendRefillPerSecond": "11"}, "ThrottleSendCapacity"),
        ({**SEND, "ThrottleSendCapacity": "100000.1"}, "ThrottleSendCapacity"),
        ({**SEND, "ThrottleSendCapacity": "-10"}, "ThrottleSendCapacity"),
        ({**SEND, "ThrottleSendCapacity": "NaN"}, "ThrottleSendCapacity"),
        ({**SEND, "ThrottleSendRefillPerSecond": "Infinity"}, "ThrottleSendRefillPerSecond"),
        ({**SEND, "ThrottleSendRefillPerSecond": "fast"}, "ThrottleSendRefillPerSecond"),
        ({**SEND, "ThrottleSendRefillPerSecond": ""}, "ThrottleSendRefillPerSecond"),
    ],
)
def test_values_that_are_refused(
    memory_sqs: SqsServer, make_queue: MakeQueue, attributes: dict[str, str], named: str
) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    calls: tuple[Call, ...] = (
        lambda: client.set_queue_attributes(QueueUrl=url, Attributes=attributes),
        lambda: client.create_queue(QueueName="never-made", Attributes=attributes),
    )
    for call in calls:
        with pytest.raises(client.exceptions.InvalidAttributeValue, match=f"parameter {named}"):
            call()
    assert granted(client, url, 15) == 15


def test_limits_are_checked_as_they_would_be_after_the_change(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, **SEND)
    client.set_queue_attributes(QueueUrl=url, Attributes={"ThrottleSendCapacity": "20"})
    with pytest.raises(client.exceptions.InvalidAttributeValue, match="ThrottleSendCapacity"):
        client.set_queue_attributes(QueueUrl=url, Attributes={"ThrottleSendRefillPerSecond": "21"})
    zeros = {"ThrottleSendCapacity": "0", "ThrottleSendRefillPerSecond": "0"}
    client.set_queue_attributes(QueueUrl=url, Attributes=zeros)
    assert granted(client, url, 25) == 25


def test_values_take_part_in_creating_again(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, **SEND)
    same = {"ThrottleSendCapacity": "10.0", "ThrottleSendRefillPerSecond": "0.0010"}
    assert client.create_queue(QueueName=name_of(url), Attributes=same)["QueueUrl"] == url
    with pytest.raises(client.exceptions.QueueNameExists, match="ThrottleSendCapacity"):
        client.create_queue(QueueName=name_of(url), Attributes={**SEND, "ThrottleSendCapacity": "11"})


def test_the_answer_in_both_protocols(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, ThrottleSendCapacity=10, ThrottleSendRefillPerSecond="0.01")
    assert granted(client, url) == 10
    message = f"Rate exceeded for queue '{name_of(url)}' action 'Send'"
    with pytest.raises(ClientError) as caught:
        client.send_message(QueueUrl=url, MessageBody="x")
    assert caught.value.response["Error"]["Code"] == "Throttling"
    assert caught.value.response["Error"]["Message"] == message
    assert 90 <= int(caught.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"]) <= 100
    form = {"Action": "SendMessageBatch", "Version": "2012-11-05", "QueueUrl": url}
    for number in (1, 2):
        form[f"SendMessageBatchRequestEntry.{number}.Id"] = str(number)
        form[f"SendMessageBatchRequestEntry.{number}.MessageBody"] = "x"
    answer = memory_sqs.http("POST", "/", urlencode(form))
    text = answer.body.decode()
    assert answer.status == 400
    assert "<Code>Throttling</Code>" in text
    assert "<Type>Sender</Type>" in text
    assert message in text.replace("&apos;", "'").replace("&#x27;", "'").replace("&#39;", "'")
    assert 190 <= int(answer.headers["retry-after"]) <= 200


def test_retry_after_is_bounded(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    for refill, expected in (("0.00001", "3600"), ("9.9", "1")):
        url = make_queue(client, ThrottleSendCapacity=10, ThrottleSendRefillPerSecond=refill)
        client.send_message_batch(QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": "x"} for n in range(10)])
        with pytest.raises(ClientError) as caught:
            client.send_message_batch(QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": "x"} for n in range(9)])
        assert caught.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == expected


def test_a_batch_is_refused_whole(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, **SEND)
    batch = [{"Id": str(number), "MessageBody": "x"} for number in range(6)]
    client.send_message_batch(QueueUrl=url, Entries=batch)
    with pytest.raises(ClientError, match="Rate exceeded"):
        client.send_message_batch(QueueUrl=url, Entries=batch)
    assert counts(client, url) == (6, 0, 0)
    assert granted(client, url) == 4, "the refused batch took nothing"


def test_what_receives_cost(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, **RECV)
    assert granted(client, url, 12) == 12, "sending has no limit of its own"
    messages = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    handles = [message["ReceiptHandle"] for message in messages]
    client.delete_message(QueueUrl=url, ReceiptHandle=handles[0])
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=handles[1], VisibilityTimeout=60)
    entries = [{"Id": str(number), "ReceiptHandle": handles[number]} for number in range(2, 6)]
    client.delete_message_batch(QueueUrl=url, Entries=entries)
    entries = [{"Id": str(number), "ReceiptHandle": handles[number]} for number in range(6, 10)]
    with pytest.raises(ClientError, match="action 'Receive'"):
        client.delete_message_batch(QueueUrl=url, Entries=entries)
    client.change_message_visibility_batch(
        QueueUrl=url, Entries=[{**entry, "VisibilityTimeout": 60} for entry in entries[:3]]
    )
    with pytest.raises(ClientError, match="action 'Receive'"):
        client.receive_message(QueueUrl=url)
    assert counts(client, url) == (2, 5, 0)
    client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    client.purge_queue(QueueUrl=url)


def test_what_falls_through_shares_a_bucket(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, **DEFAULT)
    for _ in range(5):
        client.send_message(QueueUrl=url, MessageBody="x")
        client.receive_message(QueueUrl=url)
    with pytest.raises(ClientError, match="action 'Receive'"):
        client.receive_message(QueueUrl=url)
    with pytest.raises(ClientError, match="action 'Send'"):
        client.send_message(QueueUrl=url, MessageBody="x")
    assert list(memory_sqs.metrics("sqs_throttle_tokens_remaining", queue=name_of(url))) == [("*",)]


def test_a_missing_queue_is_not_charged(memory_sqs: SqsServer) -> None:
    client = memory_sqs.anyone
    url = f"{memory_sqs.url}/000000000000/invented-by-a-client"
    for _ in range(20):
        with pytest.raises(client.exceptions.QueueDoesNotExist):
            client.send_message(QueueUrl=url, MessageBody="x")
    assert b"invented-by-a-client" not in memory_sqs.http("GET", "/metrics").body


def test_life_of_a_bucket(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, **SEND)
    assert granted(client, url) == 10
    client.set_queue_attributes(QueueUrl=url, Attributes=SEND)
    client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "1"})
    client.purge_queue(QueueUrl=url)
    assert granted(client, url) == 0, "the same values, other attributes and a purge refill nothing"
    client.set_queue_attributes(QueueUrl=url, Attributes={"ThrottleSendCapacity": "1000"})
    assert granted(client, url) == 0, "a raised limit hands out no burst"
    client.delete_queue(QueueUrl=url)
    make_queue(client, name=name_of(url), **SEND)
    assert granted(client, url) == 10, "a queue made anew starts full"


def test_a_lowered_limit_bites_at_once(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, ThrottleSendCapacity=1000, ThrottleSendRefillPerSecond=SLOW)
    client.send_message(QueueUrl=url, MessageBody="x")
    client.set_queue_attributes(QueueUrl=url, Attributes={"ThrottleSendCapacity": "12"})
    assert granted(client, url) == 12


def test_metrics(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, **SEND, **RECV)
    name = name_of(url)
    assert granted(client, url) == 10
    with pytest.raises(ClientError, match="Rate exceeded"):
        client.send_message(QueueUrl=url, MessageBody="x")
    for _ in range(4):
        client.receive_message(QueueUrl=url)
    assert memory_sqs.metrics("sqs_throttled_requests_total", queue=name) == {("Send",): 2.0}
    left = memory_sqs.metrics("sqs_throttle_tokens_remaining", queue=name)
    assert 0 <= left["Send",] < 1
    assert 6 <= left["Receive",] < 7
    assert memory_sqs.metrics("sqs_queue_messages", queue=name) == {
        ("visible",): 6,
        ("not_visible",): 4,
        ("delayed",): 0,
    }
    client.delete_queue(QueueUrl=url)
    text = memory_sqs.http("GET", "/metrics").body.decode()
    assert not re.findall(rf".*{name}.*", text)


@pytest.mark.parametrize("broken", ['"x"', "null"])
def test_limits_that_cannot_be_read(tmp_path: Path, broken: str) -> None:
    """The server does not start without them: a queue whose limits are unknown would have none."""
    options = ("--data", str(tmp_path / "data"))
    with running(tmp_path, *options) as server:
        server.anyone.create_queue(QueueName="limited", Attributes=SEND)
    with closing(sqlite3.connect(tmp_path / "data" / "sqs.db")) as database:
        changed = database.execute(
            """update queues set config = replace(cast(config as text), '"send_capacity":"10"', ?)""",
            (f'"send_capacity":{broken}',),
        )
        assert changed.rowcount == 1
        database.commit()
    said = " ".join(SqsServer(tmp_path, *options).refusal().split())
    assert "the settings of the queue limited cannot be read" in said
    assert "Traceback" not in said
    assert "bug" not in said
