"""Answers as AWS gives them: error types, statuses and texts, and what is left out of an answer.

The expectations are recorded answers of AWS, its documentation, and the service model that botocore ships.
"""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.protocol.conftest import MakeQueue
from tests.services.sqs_server import Answer, SqsServer, receive

COMMON = "com.amazon.coral.service#"
MODELLED = "com.amazonaws.sqs#"


def ask(server: SqsServer, action: str, **fields: Any) -> Answer:
    """One request of the JSON protocol, as it is on the wire."""
    headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
    return server.http("POST", "/", json.dumps(fields), headers)


def refused(call: Callable[[], object]) -> tuple[int, str, str]:
    """The status, the code and the text of an error."""
    with pytest.raises(ClientError) as caught:
        call()
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"], answer["Error"]["Message"]


def test_an_action_that_returns_nothing_has_an_empty_body(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    answer = ask(memory_sqs, "TagQueue", QueueUrl=url, Tags={"a": "1"})
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"


def test_empty_results_are_left_out(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    for action, fields in (
        ("ListQueueTags", {}),
        ("ListDeadLetterSourceQueues", {}),
        ("ReceiveMessage", {}),
        ("GetQueueAttributes", {}),
        ("GetQueueAttributes", {"AttributeNames": ["Policy"]}),
    ):
        assert ask(memory_sqs, action, QueueUrl=url, **fields).body == b"{}", action
    assert ask(memory_sqs, "ListQueues", QueueNamePrefix="no-queue-has-this-prefix").body == b"{}"


def test_a_batch_names_only_what_happened(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    good, bad = {"Id": "good", "MessageBody": "fine"}, {"Id": "bad", "MessageBody": "\x01"}
    assert ask(memory_sqs, "SendMessageBatch", QueueUrl=url, Entries=[good]).json.keys() == {"Successful"}
    assert ask(memory_sqs, "SendMessageBatch", QueueUrl=url, Entries=[bad]).json.keys() == {"Failed"}
    both = ask(memory_sqs, "SendMessageBatch", QueueUrl=url, Entries=[good, bad]).json
    assert both.keys() == {"Successful", "Failed"}
    assert (both["Failed"][0]["Code"], both["Failed"][0]["SenderFault"]) == ("InvalidMessageContents", True)


@pytest.mark.parametrize(
    ("action", "fields", "status", "kind", "legacy"),
    [
        ("GetQueueUrl", {"QueueName": "absent"}, 400, "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"),
        ("CreateQueue", {"QueueName": "a b"}, 400, "InvalidParameterValueException", "InvalidParameterValue"),
        ("GetQueueAttributes", {"AttributeNames": ["X"]}, 400, "InvalidAttributeName", "InvalidAttributeName"),
        ("SetQueueAttributes", {"Attributes": {"X": "1"}}, 400, "InvalidAttributeName", "InvalidAttributeName"),
        (
            "SetQueueAttributes",
            {"Attributes": {"DelaySeconds": "x"}},
            400,
            "InvalidAttributeValue",
            "InvalidAttributeValue",
        ),
        ("SendMessage", {"MessageBody": ""}, 400, "MissingRequiredParameterException", "MissingParameter"),
        ("SendMessage", {"MessageBody": "\x00"}, 400, "InvalidMessageContents", "InvalidMessageContents"),
        ("DeleteMessage", {}, 400, "MissingRequiredParameterException", "MissingParameter"),
        ("DeleteMessage", {"ReceiptHandle": "garbage"}, 404, "ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"),
        (
            "ChangeMessageVisibility",
            {"ReceiptHandle": "garbage", "VisibilityTimeout": 1},
            404,
            "ReceiptHandleIsInvalid",
            "ReceiptHandleIsInvalid",
        ),
        (
            "ReceiveMessage",
            {"MaxNumberOfMessages": 11},
            400,
            "InvalidParameterValueException",
            "InvalidParameterValue",
        ),
        ("Dance", {}, 400, "UnknownOperationException", "InvalidAction"),
        ("ListQueues", {"MaxResults": "ten"}, 400, "SerializationException", "MalformedInput"),
    ],
)
def test_error_types(
    memory_sqs: SqsServer, make_queue: MakeQueue, action: str, fields: Any, status: int, kind: str, legacy: str
) -> None:
    answer = ask(memory_sqs, action, **{"QueueUrl": make_queue(memory_sqs.anyone), **fields})
    namespace = MODELLED if hasattr(memory_sqs.anyone.exceptions, kind) else COMMON
    assert (answer.status, answer.json["__type"]) == (status, namespace + kind)
    assert answer.headers["x-amzn-errortype"] == namespace + kind
    assert answer.headers["x-amzn-query-error"] == f"{legacy};Sender"


@pytest.mark.parametrize("action", ["SendMessage", "ReceiveMessage", "PurgeQueue", "ListQueueTags"])
@pytest.mark.parametrize("given", [{}, {"QueueUrl": ""}, {"QueueUrl": None}])
def test_no_queue_is_named(memory_sqs: SqsServer, action: str, given: dict[str, Any]) -> None:
    answer = ask(memory_sqs, action, MessageBody="x", **given)
    assert (answer.status, answer.json["__type"]) == (400, MODELLED + "QueueDoesNotExist")


def test_no_queue_name_is_given(memory_sqs: SqsServer) -> None:
    for action in ("CreateQueue", "GetQueueUrl"):
        for given in ({}, {"QueueName": ""}) if action == "CreateQueue" else ({},):
            answer = ask(memory_sqs, action, **given)
            assert (answer.status, answer.json["__type"]) == (400, COMMON + "InvalidParameterValueException")


def test_a_handle_of_a_deleted_message(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    client.send_message(QueueUrl=url, MessageBody="x")
    (message,) = receive(client, url)
    handle = message["ReceiptHandle"]
    for _ in range(2):
        client.delete_message(QueueUrl=url, ReceiptHandle=handle)
    assert refused(
        lambda: client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=1)
    ) == (
        400,
        "InvalidParameterValue",
        (
            f"Value {handle} for parameter ReceiptHandle is invalid. "
            "Reason: Message does not exist or is not available for visibility timeout change."
        ),
    )
    assert refused(lambda: client.delete_message(QueueUrl=url, ReceiptHandle="garbage")) == (
        404,
        "ReceiptHandleIsInvalid",
        'The input receipt handle "garbage" is not a valid receipt handle.',
    )


def test_a_second_purge(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    client.purge_queue(QueueUrl=url)
    status, code, text = refused(lambda: client.purge_queue(QueueUrl=url))
    assert (status, code) == (403, "AWS.SimpleQueueService.PurgeQueueInProgress")
    assert text == f"Only one PurgeQueue operation on {url.rpartition('/')[2]} is allowed every 60 seconds."


@pytest.mark.parametrize("action", ["send_message_batch", "delete_message_batch", "change_message_visibility_batch"])
def test_empty_batches(memory_sqs: SqsServer, make_queue: MakeQueue, action: str) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    name = "".join(word.capitalize() for word in action.split("_"))
    assert refused(lambda: getattr(client, action)(QueueUrl=url, Entries=[])) == (
        400,
        "AWS.SimpleQueueService.EmptyBatchRequest",
        f"There should be at least one {name}RequestEntry in the request.",
    )


# Sending


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("MessageGroupId", "The request must contain the parameter MessageGroupId."),
        (
            "MessageDeduplicationId",
            (
                "The queue should either have ContentBasedDeduplication enabled or "
                "MessageDeduplicationId provided explicitly"
            ),
        ),
    ],
)
def test_a_fifo_batch_is_refused_whole(memory_sqs: SqsServer, make_queue: MakeQueue, missing: str, text: str) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, fifo=True)
    entries = [
        {"Id": str(n), "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": str(n)} for n in range(2)
    ]
    del entries[1][missing]
    assert refused(lambda: client.send_message_batch(QueueUrl=url, Entries=entries)) == (
        400,
        "InvalidParameterValue",
        text,
    )
    assert receive(client, url) == []


def test_sizes_of_messages_and_batches(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    small, large = make_queue(client, MaximumMessageSize=1024), make_queue(client)
    assert refused(lambda: client.send_message(QueueUrl=small, MessageBody="a" * 1025)) == (
        400,
        "InvalidParameterValue",
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
    )
    entries = [{"Id": "a", "MessageBody": "a" * 1024}, {"Id": "b", "MessageBody": "a" * 1025}]
    answer = client.send_message_batch(QueueUrl=small, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["a"]
    assert answer["Failed"] == [
        {
            "Id": "b",
            "Code": "InvalidParameterValue",
            "SenderFault": True,
            "Message": "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes.",
        }
    ]
    # An entry that fails by itself counts too.
    for bodies in (("a" * 1_048_576, "a"), ("a" * 1_048_577,)):
        batch = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies)]
        assert refused(lambda batch=batch: client.send_message_batch(QueueUrl=large, Entries=batch)) == (  # type: ignore[misc]
            400,
            "AWS.SimpleQueueService.BatchRequestTooLong",
            "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.",
        )


def test_a_delay_of_one_message_in_a_fifo_queue(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, fifo=True, ContentBasedDeduplication="true")
    assert refused(lambda: client.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g", DelaySeconds=2)) == (
        400,
        "InvalidParameterValue",
        (
            "Value 2 for parameter DelaySeconds is invalid. "
            "Reason: The request include parameter that is not valid for this queue type."
        ),
    )


def test_attribute_names_beyond_ascii(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    good = {"attr.1øßä_名-前": {"DataType": "String", "StringValue": "x"}}
    client.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=good)  # boto3 compares the digests
    assert receive(client, url)[0]["MessageAttributes"] == good
    for name in ("a!b", "a§b", "a(b", "a b", "aWs.x", "AMAZON.x", ".x", "x.", "a..b", "L" * 257):
        bad = {name: {"DataType": "String", "StringValue": "x"}}
        sent = lambda bad=bad: client.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=bad)  # noqa: E731
        assert refused(sent)[:2] == (400, "InvalidParameterValue"), name


# The Query protocol


def get(server: SqsServer, url: str, accept: str = "", **parameters: str) -> Answer:
    """A GET of the Query protocol."""
    headers = {"Accept": accept} if accept else {}
    path = urlsplit(url).path + ("?" + urlencode(parameters) if parameters else "")
    return server.http("GET", path, headers=headers)


def test_the_url_of_a_queue_is_an_endpoint(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url, other = make_queue(memory_sqs.anyone), make_queue(memory_sqs.anyone)
    assert get(memory_sqs, url, Action="SendMessage", MessageBody="foobar").status == 200
    assert b"<ReceiveMessageResult/>" in get(memory_sqs, other, Action="ReceiveMessage").body
    assert b"<Body>foobar</Body>" in get(memory_sqs, url, Action="ReceiveMessage").body
    arn = get(memory_sqs, url, Action="GetQueueAttributes", QueueUrl=other, **{"AttributeName.1": "QueueArn"})
    assert other.rpartition("/")[2].encode() in arn.body
    assert other.encode() in get(memory_sqs, url, Action="GetQueueUrl", QueueName=other.rpartition("/")[2]).body
    for action in ("CreateQueue", "ListQueues", "FooBar"):
        answer = get(memory_sqs, url, Action=action, QueueName="made-at-a-queue")
        assert answer.status == 400
        assert b"<Code>InvalidAction</Code>" in answer.body
        assert f"<Message>The action {action} is not valid for this endpoint.</Message>".encode() in answer.body
    missing = get(memory_sqs, url, Action="SendMessage")
    assert missing.status == 400
    assert b"<Message>The request must contain the parameter MessageBody.</Message>" in missing.body


def test_a_queue_that_is_not_there_by_query(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    memory_sqs.anyone.delete_queue(QueueUrl=url)
    answer = get(memory_sqs, url, Action="GetQueueAttributes", **{"AttributeName.1": "QueueArn"})
    assert answer.status == 400
    assert b"<Code>AWS.SimpleQueueService.NonExistentQueue</Code>" in answer.body
    assert b"<Message>The specified queue does not exist for this wsdl version.</Message>" in answer.body


@pytest.mark.parametrize("accept", ["", "application/json"])
def test_a_request_without_parameters(memory_sqs: SqsServer, make_queue: MakeQueue, accept: str) -> None:
    answer = get(memory_sqs, make_queue(memory_sqs.anyone), accept)
    assert (answer.status, answer.body) == (404, b"<UnknownOperationException/>\n")
    assert answer.headers["content-type"] == "text/xml"


def test_the_query_protocol_in_json(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, VisibilityTimeout=7)
    body = '{"foo": "ba\\rr", "foo2": "ba&quot;r"}'
    attributes = {"n": {"DataType": "Number", "StringValue": "1"}, "b": {"DataType": "Binary", "BinaryValue": b"\0"}}
    client.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes)

    def asked(action: str, **parameters: str) -> Any:
        answer = get(memory_sqs, url, "application/json", Action=action, **parameters)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        response = answer.json[f"{action}Response"]
        assert response["ResponseMetadata"]["RequestId"] == answer.headers["x-amzn-requestid"]
        return response.get(f"{action}Result")

    (message,) = asked("ReceiveMessage", **{"MessageAttributeName.1": "All"})["messages"]
    assert message["Body"] == body
    values = {each["Name"]: each["Value"] for each in message["MessageAttributes"]}
    assert (values["n"]["StringValue"], values["b"]["BinaryValue"]) == ("1", "AA==")
    assert asked("ReceiveMessage")["messages"] is None
    shown = asked("GetQueueAttributes", **{"AttributeName.1": "VisibilityTimeout"})
    assert shown["Attributes"] == [{"Name": "VisibilityTimeout", "Value": "7"}]
    assert asked("DeleteMessage", ReceiptHandle=message["ReceiptHandle"]) is None
    listed = get(memory_sqs, "/", "application/json", Action="ListQueues").json
    assert url in listed["ListQueuesResponse"]["ListQueuesResult"]["queueUrls"]
    refusal = get(memory_sqs, url, "application/json", Action="ListQueues")
    assert refusal.status == 400
    assert refusal.json["Error"]["Code"] == "InvalidAction"
    assert refusal.json["Error"]["Message"] == "The action ListQueues is not valid for this endpoint."
    # Clients accept anything by default, and get XML.
    assert b"<ListQueuesResponse" in get(memory_sqs, "/", "*/*", Action="ListQueues").body


def test_both_names_of_system_attributes_by_query(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    memory_sqs.anyone.send_message(QueueUrl=url, MessageBody="x")
    names = {"AttributeName.1": "SenderId", "MessageSystemAttributeName.1": "All"}
    answer = get(memory_sqs, url, Action="ReceiveMessage", **names)
    assert answer.body.count(b"<Attribute>") == 1
