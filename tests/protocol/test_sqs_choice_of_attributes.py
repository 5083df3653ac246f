"""Which attributes a receive returns, by the names it asks for, in both protocols; the digests were recorded on AWS."""

import json
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest

from tests.protocol.conftest import MakeQueue
from tests.services.sqs_requests import JSON, QUERY, flat
from tests.services.sqs_server import SqsServer

NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"
ATTRIBUTES = {
    name: {"DataType": "String", "StringValue": value}
    for name, value in (("Help.Me", "Me"), ("Hello", "There"), ("General", "Kenobi"))
}
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
EVERYTHING = "4c360f3fdafd970e05fae2f149d997f5"
BY_PREFIX = "83fee93c1bcd8b9a5a923ffacdc636c7"
OF_ALL_MESSAGES = {"SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp"}

both = pytest.mark.parametrize("protocol", [JSON, QUERY])


def received(server: SqsServer, protocol: str, url: str, **asked: Any) -> tuple[set[str], set[str], str]:
    """The names of the system attributes and of the others of the one message, and the digest of the others."""
    fields = {"QueueUrl": url, "VisibilityTimeout": 0, **asked}
    if protocol == JSON:
        headers = {"X-Amz-Target": "AmazonSQS.ReceiveMessage", "Content-Type": "application/x-amz-json-1.0"}
        (one,) = server.http("POST", "/", json.dumps(fields), headers).json["Messages"]
        digest = one.get("MD5OfMessageAttributes", "")
        return set(one.get("Attributes", {})), set(one.get("MessageAttributes", {})), digest
    pairs = [("Action", "ReceiveMessage"), *flat("ReceiveMessage", fields)]
    root = ElementTree.fromstring(server.http("POST", "/", urlencode(pairs)).body)
    (message,) = root.iter(f"{NAMESPACE}Message")
    system = {each.findtext(f"{NAMESPACE}Name") or "" for each in message.findall(f"{NAMESPACE}Attribute")}
    others = {each.findtext(f"{NAMESPACE}Name") or "" for each in message.findall(f"{NAMESPACE}MessageAttribute")}
    return system, others, message.findtext(f"{NAMESPACE}MD5OfMessageAttributes") or ""


@pytest.fixture
def url(memory_sqs: SqsServer, make_queue: MakeQueue) -> str:
    """A queue with one message."""
    queue = make_queue(memory_sqs.anyone)
    memory_sqs.anyone.send_message(
        QueueUrl=queue, MessageBody="msg", MessageAttributes=ATTRIBUTES, MessageSystemAttributes=TRACE
    )
    return queue


@both
@pytest.mark.parametrize(
    ("asked", "names", "digest"),
    [
        ([], "", ""),
        (["All"], "General Hello Help.Me", EVERYTHING),
        ([".*"], "General Hello Help.Me", EVERYTHING),
        (["*"], "General Hello Help.Me", EVERYTHING),
        (["Hello", "All"], "General Hello Help.Me", EVERYTHING),
        (["Hel.*"], "Hello Help.Me", BY_PREFIX),
        (["Hel*"], "Hello Help.Me", BY_PREFIX),
        (["Help.*"], "Help.Me", None),
        (["Hello", "General"], "General Hello", "fca026605781cb4126a1e9044df24232"),
        (["Hello", "Hello"], "Hello", "a311262e065454b75da111d535b8dacd"),
        (["Foo", "Hello"], "Hello", "a311262e065454b75da111d535b8dacd"),
        (["Foo", "Help"], "", ""),
        (["hello"], "", ""),
        (["all"], "", ""),
        (["AWS."], "", ""),
        (["..foo"], "", ""),
        ([""], "", ""),
    ],
)
def test_attributes_of_a_message(
    memory_sqs: SqsServer, protocol: str, url: str, asked: list[str], names: str, digest: str | None
) -> None:
    system, found, md5 = received(memory_sqs, protocol, url, MessageAttributeNames=asked)
    assert (system, found) == (set(), set(names.split()))
    assert digest is None or md5 == digest


@both
@pytest.mark.parametrize("parameter", ["AttributeNames", "MessageSystemAttributeNames"])
@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (["All"], OF_ALL_MESSAGES | {"AWSTraceHeader"}),
        (["SenderId"], {"SenderId"}),
        (["SenderId", "SequenceNumber"], {"SenderId"}),
        (["MessageGroupId", "MessageDeduplicationId", "DeadLetterQueueSourceArn"], set()),
        (["AWSTraceHeader", "SentTimestamp"], {"AWSTraceHeader", "SentTimestamp"}),
    ],
)
def test_attributes_of_the_system(
    memory_sqs: SqsServer, protocol: str, url: str, parameter: str, asked: list[str], names: set[str]
) -> None:
    assert received(memory_sqs, protocol, url, **{parameter: asked}) == (names, set(), "")


@both
def test_both_names_of_the_parameter(memory_sqs: SqsServer, protocol: str, url: str) -> None:
    """JSON joins them; the Query protocol has the older one only."""
    system, _, _ = received(
        memory_sqs, protocol, url, AttributeNames=["SenderId"], MessageSystemAttributeNames=["SentTimestamp"]
    )
    assert system == ({"SenderId", "SentTimestamp"} if protocol == JSON else {"SenderId"})
