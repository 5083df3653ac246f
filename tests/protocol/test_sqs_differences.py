"""Where the server differs from AWS: a test here or elsewhere shows each row of the table in docs/reference/sqs.md."""

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.protocol.conftest import MakeQueue
from tests.rigs.penstock_process import wait_until
from tests.services.sqs_server import ADMIN, REGION, SqsServer, bodies, counts, receive

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "sqs.md"


def arn_of(client: Any, url: str) -> str:
    return str(client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])


def rows() -> list[list[str]]:
    """The rows of the tables of differences."""
    part = PAGE.read_text().partition("## Where it differs from AWS")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ") and not line.startswith("| what")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_difference_names_a_test_that_shows_it() -> None:
    assert len(rows()) > 20
    for *_, shown_by in rows():
        found = re.fullmatch(r"`(\w+)::(\w+)`", shown_by)
        assert found, shown_by
        files = list((ROOT / "tests").rglob(f"{found[1]}.py"))
        assert len(files) == 1, shown_by
        assert f"def {found[2]}(" in files[0].read_text(), shown_by


def test_changes_take_effect_at_once(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    client.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "0", "MaximumMessageSize": "1024"})
    client.send_message(QueueUrl=url, MessageBody="x")
    assert [len(receive(client, url)) for _ in range(3)] == [1, 1, 1]
    with pytest.raises(ClientError, match="must be shorter than 1024 bytes"):
        client.send_message(QueueUrl=url, MessageBody="x" * 1025)
    client.purge_queue(QueueUrl=url)
    assert (receive(client, url), counts(client, url)) == ([], (0, 0, 0))
    client.send_message(QueueUrl=url, MessageBody="sent at once after the purge")
    assert counts(client, url) == (1, 0, 0)
    client.delete_queue(QueueUrl=url)
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.send_message(QueueUrl=url, MessageBody="x")


@pytest.mark.parametrize("fifo", [False, True])
def test_a_change_of_the_delay_is_for_messages_sent_after_it(sqs: SqsServer, make_queue: MakeQueue, fifo: bool) -> None:
    """On AWS too in a standard queue; in a FIFO queue it holds there for messages that wait already."""
    client = sqs.anyone
    url = make_queue(client, fifo=fifo, DelaySeconds=900)

    def send(body: str) -> None:
        ids = {"MessageGroupId": body, "MessageDeduplicationId": body} if fifo else {}
        client.send_message(QueueUrl=url, MessageBody=body, **ids)

    send("before")
    client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})
    send("after")
    assert bodies(receive(client, url)) == ["after"]
    assert counts(client, url) == (0, 1, 1)


def test_a_standard_queue_keeps_the_order_and_counts_exactly(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    for number in range(25):
        client.send_message(QueueUrl=url, MessageBody=str(number))
    assert counts(client, url) == (25, 0, 0)
    assert bodies([*receive(client, url), *receive(client, url), *receive(client, url)]) == [str(n) for n in range(25)]
    assert counts(client, url) == (0, 25, 0)


def test_no_quota(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    """On AWS, a FIFO queue takes 300 requests a second of each kind."""
    client = memory_sqs.anyone
    url = make_queue(client, fifo=True, ContentBasedDeduplication="true")
    for number in range(700):
        client.send_message(QueueUrl=url, MessageBody=str(number), MessageGroupId="g")
    assert counts(client, url) == (700, 0, 0)


def test_ids_and_handles_are_numbers(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    ids = [client.send_message(QueueUrl=url, MessageBody="x")["MessageId"] for _ in range(100)]
    assert len({UUID(each) for each in ids}) == 100
    assert ids == sorted(ids)
    handles = [receive(client, url, 1)[0]["ReceiptHandle"] for _ in range(100)]
    assert len(set(handles)) == 100
    assert handles == sorted(handles)


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
def test_the_json_protocol_by_any_method(memory_sqs: SqsServer, method: str) -> None:
    answer = memory_sqs.http(method, "/", "{}", {"X-Amz-Target": "AmazonSQS.ListQueues"})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-amz-json-1.0")


def test_a_receive_has_at_most_a_mebibyte(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    for _ in range(3):
        client.send_message(QueueUrl=url, MessageBody="x" * 700_000)
    assert [len(receive(client, url)) for _ in range(3)] == [1, 1, 1]


def test_policies_are_not_enforced(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    statement: dict[str, object] = {"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    url = make_queue(client, Policy=policy)
    client.send_message(QueueUrl=url, MessageBody="x")
    assert bodies(receive(client, url)) == ["x"]
    client.add_permission(QueueUrl=url, Label="l", AWSAccountIds=["999999999999"], Actions=["*"])
    assert (
        "999999999999" in client.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    )
    statement |= {"Principal": {"AWS": "no one"}, "Action": "other:Action"}
    client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps({"Statement": statement})})
    del statement["Principal"]
    with pytest.raises(client.exceptions.InvalidAttributeValue):
        client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps({"Statement": statement})})


@pytest.mark.parametrize("version", ["2012-11-05", "2008-01-01", "2026-01-01", "latest", ""])
def test_the_version_of_a_request_is_not_looked_at(memory_sqs: SqsServer, make_queue: MakeQueue, version: str) -> None:
    name = make_queue(memory_sqs.anyone).rpartition("/")[2]
    answer = memory_sqs.http("GET", f"/?Action=GetQueueUrl&QueueName={name}&Version={version}")
    assert answer.status == 200
    assert b"http://queue.amazonaws.com/doc/2012-11-05/" in answer.body


def test_numbers_are_kept_as_they_are(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    numbers = ("001.50", "1e400", "-0", "9" * 60, "+.5E-200")
    sent = {f"n{place}": {"DataType": "Number", "StringValue": number} for place, number in enumerate(numbers)}
    client.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=sent)  # boto3 compares the digests
    assert receive(client, url)[0]["MessageAttributes"] == sent


def test_nothing_is_encrypted_by_a_key(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, KmsMasterKeyId="alias/no-such-key")
    client.send_message(QueueUrl=url, MessageBody="x")
    assert bodies(receive(client, url)) == ["x"]


def test_the_sender_is_the_access_key(secured_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = secured_sqs.admin
    url = make_queue(client)
    client.send_message(QueueUrl=url, MessageBody="x")
    assert receive(client, url)[0]["Attributes"]["SenderId"] == ADMIN[0]


def test_session_tokens_are_not_checked(secured_sqs: SqsServer) -> None:
    key, secret = ADMIN
    client = boto3.client(
        "sqs",
        endpoint_url=secured_sqs.url,
        region_name=REGION,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token="whatever",
        config=Config(retries={"total_max_attempts": 1}),
    )
    assert client.list_queues()["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_a_crash_makes_messages_in_flight_visible(own_sqs: SqsServer) -> None:
    client = own_sqs.anyone
    url = client.create_queue(QueueName="q")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="x")
    receive(client, url, VisibilityTimeout=600)
    own_sqs.kill()
    own_sqs.start()
    (message,) = receive(client, url)
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"  # the receive before the crash is not counted


def test_a_restart_ends_moves_and_allows_a_purge(own_sqs: SqsServer) -> None:
    client = own_sqs.anyone
    dead = client.create_queue(QueueName="dead")["QueueUrl"]
    arn = arn_of(client, dead)
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    source = client.create_queue(QueueName="source", Attributes={"RedrivePolicy": redrive})["QueueUrl"]
    for _ in range(3):
        client.send_message_batch(QueueUrl=dead, Entries=[{"Id": str(n), "MessageBody": "x"} for n in range(10)])
    client.start_message_move_task(SourceArn=arn, DestinationArn=arn_of(client, source), MaxNumberOfMessagesPerSecond=1)
    wait_until(lambda: counts(client, source)[0] > 0)
    client.purge_queue(QueueUrl=source)
    own_sqs.stop()
    own_sqs.start()
    assert client.list_message_move_tasks(SourceArn=arn).get("Results", []) == []
    assert counts(client, dead)[0] > 0
    client.purge_queue(QueueUrl=source)


def test_a_cancelled_move_is_unknown(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    dead = make_queue(client)
    arn = arn_of(client, dead)
    source = make_queue(client, RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1}))
    for _ in range(3):
        client.send_message_batch(QueueUrl=dead, Entries=[{"Id": str(n), "MessageBody": "x"} for n in range(10)])
    handle = client.start_message_move_task(
        SourceArn=arn, DestinationArn=arn_of(client, source), MaxNumberOfMessagesPerSecond=1
    )["TaskHandle"]
    client.cancel_message_move_task(TaskHandle=handle)
    with pytest.raises(client.exceptions.ResourceNotFoundException, match="Task does not exist"):
        client.cancel_message_move_task(TaskHandle=handle)
