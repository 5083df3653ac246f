"""Answers as AWS gives them: error types, statuses and texts, and what is left out of an answer.

The expectations are answers of AWS that others recorded, its documentation, and the service model that botocore ships;
where none of them says anything (tag limits, an empty batch), what other SQS servers answer.
"""

import base64
import json
import uuid
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
    """A request of the Query protocol with its parameters in the URL."""
    headers = {"Accept": accept} if accept else {}
    path = urlsplit(url).path + ("?" + urlencode(parameters) if parameters else "")
    return server.http("POST" if parameters else "GET", path, headers=headers)


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


# Attributes, policies, tags


def shown(client: Any, url: str, *names: str) -> dict[str, str]:
    answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=list(names or ("All",)))
    attributes: dict[str, str] = answer.get("Attributes", {})
    return attributes


def test_only_the_attributes_of_aws_are_shown(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    standard = {
        "QueueArn",
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
        "CreatedTimestamp",
        "LastModifiedTimestamp",
        "VisibilityTimeout",
        "MaximumMessageSize",
        "MessageRetentionPeriod",
        "DelaySeconds",
        "ReceiveMessageWaitTimeSeconds",
        "SqsManagedSseEnabled",
    }
    fifo = standard | {"FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"}
    assert shown(client, make_queue(client)).keys() == standard
    url = make_queue(client, fifo=True)
    assert shown(client, url).keys() == fifo
    # Who knows of our own attributes may ask for them.
    assert shown(client, url, "PartitionCount") == {"PartitionCount": "1"}
    assert shown(client, url, "ThrottleSendCapacity") == {"ThrottleSendCapacity": "0"}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("FifoQueue", "false", "Unknown Attribute FifoQueue."),
        ("ContentBasedDeduplication", "false", "Unknown Attribute ContentBasedDeduplication."),
        (
            "DeduplicationScope",
            "queue",
            "You can specify the DeduplicationScope only when FifoQueue is set to true.",
        ),
        (
            "FifoThroughputLimit",
            "perQueue",
            "You can specify the FifoThroughputLimit only when FifoQueue is set to true.",
        ),
    ],
)
def test_attributes_of_fifo_queues_on_a_standard_one(
    memory_sqs: SqsServer, make_queue: MakeQueue, name: str, value: str, text: str
) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    expected = (400, "InvalidAttributeName", text)
    assert refused(lambda: client.create_queue(QueueName="never-made", Attributes={name: value})) == expected
    assert refused(lambda: client.set_queue_attributes(QueueUrl=url, Attributes={name: value})) == expected


def test_the_throughput_of_a_fifo_queue_may_change(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, fifo=True)
    high = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    plain = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}

    def send(group: str) -> str:
        sent = client.send_message(QueueUrl=url, MessageBody="x", MessageGroupId=group, MessageDeduplicationId="d")
        message_id: str = sent["MessageId"]
        return message_id

    first = send("a")
    client.set_queue_attributes(QueueUrl=url, Attributes=high)
    assert shown(client, url, *high) == high
    assert send("b") == first  # as on AWS, deduplication changes a minute later
    assert refused(lambda: client.set_queue_attributes(QueueUrl=url, Attributes={"DeduplicationScope": "queue"}))[
        :2
    ] == (400, "InvalidAttributeValue")
    client.set_queue_attributes(QueueUrl=url, Attributes=plain)
    assert shown(client, url, *plain) == plain
    fixed = make_queue(client, fifo=True, PartitionCount=1)
    assert refused(lambda: client.set_queue_attributes(QueueUrl=fixed, Attributes=high))[:2] == (
        400,
        "InvalidAttributeValue",
    )


def test_a_queue_may_be_its_own_dead_letter_queue(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, VisibilityTimeout=0)
    arn = shown(client, url, "QueueArn")["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    assert client.list_dead_letter_source_queues(QueueUrl=url)["queueUrls"] == [url]
    client.send_message(QueueUrl=url, MessageBody="x")
    for count in ("1", "2", "3"):
        (message,) = receive(client, url)
        assert message["Attributes"]["ApproximateReceiveCount"] == count
    client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert shown(client, url, "RedrivePolicy") == {}


def test_the_policy_document(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    one, two = "111111111111", "222222222222"
    client.add_permission(QueueUrl=url, Label="a", AWSAccountIds=[one], Actions=["ReceiveMessage"])
    client.add_permission(QueueUrl=url, Label="b", AWSAccountIds=[one, two], Actions=["SendMessage", "GetQueueUrl"])
    single, several = json.loads(shown(client, url, "Policy")["Policy"])["Statement"]
    assert (single["Principal"]["AWS"], single["Action"]) == (f"arn:aws:iam::{one}:root", "SQS:ReceiveMessage")
    assert several["Principal"]["AWS"] == [f"arn:aws:iam::{each}:root" for each in (one, two)]
    assert several["Action"] == ["SQS:SendMessage", "SQS:GetQueueUrl"]

    def add(label: str = "c", accounts: tuple[str, ...] = (one,), actions: tuple[str, ...] = ("*",)) -> object:
        return client.add_permission(QueueUrl=url, Label=label, AWSAccountIds=list(accounts), Actions=list(actions))

    invalid = (400, "InvalidParameterValue")
    assert refused(lambda: add("a")) == (*invalid, "Value a for parameter Label is invalid. Reason: Already exists.")
    add("a", actions=("ReceiveMessage",))
    assert len(json.loads(shown(client, url, "Policy")["Policy"])["Statement"]) == 2
    unverified = "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify."
    assert refused(lambda: add(accounts=())) == (*invalid, unverified)
    assert refused(lambda: add(actions=("CreateQueue",)))[:2] == invalid
    assert refused(lambda: add(actions=("*",) * 8))[:2] == (403, "OverLimit")
    assert refused(lambda: client.remove_permission(QueueUrl=url, Label="c")) == (
        *invalid,
        "Value c for parameter Label is invalid. Reason: can't find label on existing policy.",
    )
    for label in ("a", "b"):
        client.remove_permission(QueueUrl=url, Label=label)
    assert refused(lambda: client.remove_permission(QueueUrl=url, Label="b")) == (
        *invalid,
        "Value b for parameter Label is invalid. Reason: can't find label.",
    )
    for number in range(20):
        add(f"label-{number}")
    assert refused(lambda: add("one-more")) == (403, "OverLimit", "21 Statements were found, maximum allowed is 20.")


def test_limits_of_tags(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    client.tag_queue(QueueUrl=url, Tags={"k": "", "K": "v"})
    assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"k": "", "K": "v"}
    many = {str(n): "v" for n in range(51)}
    text = f"Too many tags added for queue {url.rpartition('/')[2]}."
    assert refused(lambda: client.tag_queue(QueueUrl=url, Tags=many)) == (400, "InvalidParameterValue", text)
    assert refused(lambda: client.tag_queue(QueueUrl=url, Tags={}))[1] == "MissingParameter"
    lengths = (400, "InvalidParameterValue", "Tag keys must be between 1 and 128 characters in length.")
    assert refused(lambda: client.untag_queue(QueueUrl=url, TagKeys=[])) == lengths
    assert refused(lambda: client.tag_queue(QueueUrl=url, Tags={"x" * 129: "v"})) == lengths


def test_the_trace_of_a_request(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    trace = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1"
    form = urlencode({"Action": "SendMessage", "QueueUrl": url, "MessageBody": "traced"})
    assert memory_sqs.http("POST", "/", form, {"X-Amzn-Trace-Id": trace}).status == 200
    (message,) = receive(memory_sqs.anyone, url)
    assert message["Attributes"]["AWSTraceHeader"] == trace


# Move tasks


def test_handles_of_move_tasks(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    dead = make_queue(client)
    arn = shown(client, dead, "QueueArn")["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    source = make_queue(client, RedrivePolicy=policy)
    for _ in range(3):
        client.send_message(QueueUrl=dead, MessageBody="x")
    target = shown(client, make_queue(client), "QueueArn")["QueueArn"]

    def start() -> str:
        task = client.start_message_move_task(SourceArn=arn, DestinationArn=target, MaxNumberOfMessagesPerSecond=1)
        handle: str = task["TaskHandle"]
        return handle

    handle = start()
    contents = json.loads(base64.b64decode(handle))
    assert str(uuid.UUID(contents["taskId"])) == contents["taskId"]
    assert contents["sourceArn"] == arn
    assert refused(start)[:2] == (400, "InvalidParameterValue")
    assert client.list_message_move_tasks(SourceArn=arn)["Results"][0]["TaskHandle"] == handle
    client.cancel_message_move_task(TaskHandle=handle)

    def other(task_id: str, source_arn: str) -> str:
        return base64.b64encode(json.dumps({"taskId": task_id, "sourceArn": source_arn}).encode()).decode()

    for text, expected in (
        ("foobared", (400, "InvalidParameterValue", "Value for parameter TaskHandle is invalid.")),
        (other("no", arn), (404, "ResourceNotFoundException", "Task does not exist.")),
        (
            other(contents["taskId"], arn + "-not"),
            (
                404,
                "ResourceNotFoundException",
                "The resource that you specified for the SourceArn parameter doesn't exist.",
            ),
        ),
    ):
        assert refused(lambda text=text: client.cancel_message_move_task(TaskHandle=text)) == expected  # type: ignore[misc]
    assert refused(lambda: client.start_message_move_task(SourceArn=arn, DestinationArn=arn + "-not")) == (
        404,
        "ResourceNotFoundException",
        "The resource that you specified for the DestinationArn parameter doesn't exist.",
    )
    plain = shown(client, source, "QueueArn")["QueueArn"]
    assert ask(memory_sqs, "ListMessageMoveTasks", SourceArn=plain).body == b"{}"
