"""Queues as boto3 sees them: made, found, listed, described, changed, tagged, shared, purged and deleted."""

import json
from typing import Any
from uuid import uuid4

import pytest

from tests.protocol.conftest import Call, MakeQueue
from tests.services.sqs_server import ACCOUNT, REGION, SqsServer, bodies, counts, receive


def attributes_of(client: Any, url: str, *names: str) -> dict[str, str]:
    answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=list(names) or ["All"])
    found: dict[str, str] = answer.get("Attributes", {})
    return found


def test_life_of_a_queue(sqs: SqsServer) -> None:
    client, name = sqs.anyone, f"life-{uuid4().hex}"
    url = client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "5"}, tags={"team": "a"})["QueueUrl"]
    assert url == f"{sqs.url}/{ACCOUNT}/{name}"
    assert client.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "5"})["QueueUrl"] == url
    assert client.create_queue(QueueName=name)["QueueUrl"] == url
    with pytest.raises(client.exceptions.QueueNameExists, match="VisibilityTimeout"):
        client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "6"})
    assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "a"}
    client.delete_queue(QueueUrl=url)
    calls: tuple[Call, ...] = (
        lambda: client.get_queue_url(QueueName=name),
        lambda: client.delete_queue(QueueUrl=url),
        lambda: client.send_message(QueueUrl=url, MessageBody="x"),
        lambda: client.receive_message(QueueUrl=url),
        lambda: client.purge_queue(QueueUrl=url),
    )
    for call in calls:
        with pytest.raises(client.exceptions.QueueDoesNotExist):
            call()


def test_default_attributes(sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(sqs.anyone)
    name = url.rpartition("/")[2]
    found = attributes_of(sqs.anyone, url)
    assert found.pop("CreatedTimestamp") == found.pop("LastModifiedTimestamp")
    assert found == {
        "QueueArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}",
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "VisibilityTimeout": "30",
        "MessageRetentionPeriod": "345600",
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "0",
        "MaximumMessageSize": "1048576",
        "SqsManagedSseEnabled": "true",
    }
    assert attributes_of(sqs.anyone, url, "DelaySeconds") == {"DelaySeconds": "0"}
    with pytest.raises(sqs.anyone.exceptions.InvalidAttributeName):
        attributes_of(sqs.anyone, url, "Colour")


def test_attributes_are_set_all_or_none(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "7", "VisibilityTimeout": "9"})
    assert attributes_of(client, url, "DelaySeconds", "VisibilityTimeout") == {
        "DelaySeconds": "7",
        "VisibilityTimeout": "9",
    }
    with pytest.raises(client.exceptions.InvalidAttributeValue, match="VisibilityTimeout"):
        client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "1", "VisibilityTimeout": "43201"})
    with pytest.raises(client.exceptions.InvalidAttributeName):
        client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "1", "QueueArn": "mine"})
    assert attributes_of(client, url, "DelaySeconds") == {"DelaySeconds": "7"}


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("", {}),
        ("a.b", {}),
        ("a" * 81, {}),
        ("with space", {}),
        ("no-suffix", {"FifoQueue": "true"}),
        ("a" * 76 + ".fifo", {"FifoQueue": "true"}),
        ("suffix.fifo", {}),
    ],
)
def test_names_that_are_refused(memory_sqs: SqsServer, name: str, attributes: dict[str, str]) -> None:
    client = memory_sqs.anyone
    with pytest.raises(client.exceptions.ClientError) as caught:
        client.create_queue(QueueName=name, Attributes=attributes)
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_the_longest_names(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    make_queue(memory_sqs.anyone, name="a" * 80)
    make_queue(memory_sqs.anyone, name="a" * 75 + ".fifo", fifo=True)


def test_a_url_with_another_host_names_the_same_queue(sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(sqs.anyone)
    path = f"/{ACCOUNT}/{url.rpartition('/')[2]}"
    sqs.anyone.send_message(QueueUrl=f"https://sqs.{REGION}.amazonaws.com{path}", MessageBody="by another name")
    assert bodies(receive(sqs.anyone, f"http://load-balancer:80{path}")) == ["by another name"]
    with pytest.raises(sqs.anyone.exceptions.QueueDoesNotExist):
        sqs.anyone.send_message(QueueUrl=url.replace(ACCOUNT, "111111111111"), MessageBody="another account")


def test_urls_carry_the_host_the_client_used(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    name = make_queue(memory_sqs.anyone).rpartition("/")[2]
    headers = {"Host": "queues.example:8080", "X-Amz-Target": "AmazonSQS.GetQueueUrl"}
    answer = memory_sqs.http("POST", "/", json.dumps({"QueueName": name}), headers)
    assert answer.json == {"QueueUrl": f"http://queues.example:8080/{ACCOUNT}/{name}"}


def test_listing_by_prefix_and_page(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client, prefix = sqs.anyone, f"list-{uuid4().hex}-"
    urls = [make_queue(client, name=f"{prefix}{number}") for number in range(7)]
    make_queue(client)
    assert client.list_queues(QueueNamePrefix=prefix)["QueueUrls"] == urls
    pages = client.get_paginator("list_queues").paginate(
        QueueNamePrefix=prefix, PaginationConfig={"PageSize": 3, "MaxItems": 100}
    )
    listed = [page["QueueUrls"] for page in pages]
    assert [len(page) for page in listed] == [3, 3, 1]
    assert [url for page in listed for url in page] == urls
    assert not client.list_queues(QueueNamePrefix=f"{prefix}x").get("QueueUrls")
    for bad in ({"MaxResults": 0}, {"MaxResults": 1001}, {"MaxResults": 1, "NextToken": "!"}):
        with pytest.raises(client.exceptions.ClientError) as caught:
            client.list_queues(**bad)
        assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_tags(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    assert client.list_queue_tags(QueueUrl=url).get("Tags", {}) == {}
    client.tag_queue(QueueUrl=url, Tags={"team": "a", "stage": "test"})
    client.tag_queue(QueueUrl=url, Tags={"team": "b"})
    assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "b", "stage": "test"}
    client.untag_queue(QueueUrl=url, TagKeys=["team", "unknown"])
    assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"stage": "test"}
    with pytest.raises(client.exceptions.ClientError, match="Too many tags"):
        client.tag_queue(QueueUrl=url, Tags={str(number): "x" for number in range(50)})
    assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"stage": "test"}


def test_permissions_are_statements_of_the_policy(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    client.add_permission(
        QueueUrl=url, Label="friends", AWSAccountIds=["123456789012"], Actions=["SendMessage", "ReceiveMessage"]
    )
    policy = json.loads(attributes_of(client, url)["Policy"])
    assert policy["Statement"] == [
        {
            "Sid": "friends",
            "Effect": "Allow",
            "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
            "Action": ["SQS:SendMessage", "SQS:ReceiveMessage"],
            "Resource": attributes_of(client, url)["QueueArn"],
        }
    ]
    refused = [
        {"Label": "friends", "AWSAccountIds": ["123456789012"], "Actions": ["*"]},
        {"Label": "no spaces", "AWSAccountIds": ["123456789012"], "Actions": ["*"]},
        {"Label": "other", "AWSAccountIds": ["somebody"], "Actions": ["*"]},
        {"Label": "other", "AWSAccountIds": ["123456789012"], "Actions": ["CreateQueue"]},
    ]
    for parameters in refused:
        with pytest.raises(client.exceptions.ClientError) as caught:
            client.add_permission(QueueUrl=url, **parameters)
        assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
    client.remove_permission(QueueUrl=url, Label="friends")
    assert "Policy" not in attributes_of(client, url)
    with pytest.raises(client.exceptions.ClientError, match="can't find label"):
        client.remove_permission(QueueUrl=url, Label="friends")


def test_purge_once_a_minute(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    for number in range(5):
        client.send_message(QueueUrl=url, MessageBody=str(number), DelaySeconds=60 if number == 4 else 0)
    (leased,) = receive(client, url, 1)
    client.purge_queue(QueueUrl=url)
    assert counts(client, url) == (0, 0, 0)
    assert receive(client, url) == []
    client.delete_message(QueueUrl=url, ReceiptHandle=leased["ReceiptHandle"])
    with pytest.raises(client.exceptions.PurgeQueueInProgress):
        client.purge_queue(QueueUrl=url)
    client.send_message(QueueUrl=url, MessageBody="after")
    assert bodies(receive(client, url)) == ["after"]


def test_encryption_settings_are_kept(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, KmsMasterKeyId="alias/aws/sqs")
    found = attributes_of(client, url, "KmsMasterKeyId", "SqsManagedSseEnabled", "KmsDataKeyReusePeriodSeconds")
    assert found == {
        "KmsMasterKeyId": "alias/aws/sqs",
        "SqsManagedSseEnabled": "false",
        "KmsDataKeyReusePeriodSeconds": "300",
    }
    # Without the key, the other kind of encryption stays off, and the time of a key is not shown.
    client.set_queue_attributes(QueueUrl=url, Attributes={"KmsMasterKeyId": "", "KmsDataKeyReusePeriodSeconds": "300"})
    names = ("KmsMasterKeyId", "SqsManagedSseEnabled", "KmsDataKeyReusePeriodSeconds")
    assert attributes_of(client, url, *names) == {"SqsManagedSseEnabled": "false"}


def test_a_queue_made_anew_is_another_queue(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client, name = sqs.anyone, f"again-{uuid4().hex}"
    url = make_queue(client, name=name)
    client.send_message(QueueUrl=url, MessageBody="old")
    (old,) = receive(client, url)
    client.delete_queue(QueueUrl=url)
    assert make_queue(client, name=name) == url
    assert receive(client, url) == []
    client.send_message(QueueUrl=url, MessageBody="new")
    (new,) = receive(client, url)
    with pytest.raises(client.exceptions.ReceiptHandleIsInvalid):
        client.delete_message(QueueUrl=url, ReceiptHandle=old["ReceiptHandle"])
    client.delete_message(QueueUrl=url, ReceiptHandle=new["ReceiptHandle"])
    assert counts(client, url) == (0, 0, 0)
