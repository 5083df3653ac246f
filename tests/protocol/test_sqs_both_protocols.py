"""Errors are the same in both protocols: status, code and text; and so are the results of what they let through."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest

from tests.protocol.conftest import MakeQueue
from tests.services.sqs_requests import JSON, QUERY, ask, flat
from tests.services.sqs_server import ACCOUNT, REGION, SqsServer, counts, receive

LEGACY = "AWS.SimpleQueueService."
NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"
QUEUE_TYPE = "Reason: The request include parameter that is not valid for this queue type."
NO_DEDUPLICATION = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
)
NOT_RECEIVED = "Reason: Message does not exist or is not available for visibility timeout change."

both = pytest.mark.parametrize("protocol", [JSON, QUERY])


class Refusal(NamedTuple):
    """An error as a client of either protocol sees it."""

    status: int
    code: str
    text: str


def refusal(server: SqsServer, protocol: str, action: str, fields: dict[str, Any]) -> Refusal:
    """Send one request, which must fail."""
    if protocol == JSON:
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        answer = server.http("POST", "/", json.dumps(fields), headers)
        assert answer.status >= 400, answer.body
        code, _, fault = answer.headers["x-amzn-query-error"].partition(";")
        assert fault == "Sender"
        return Refusal(answer.status, code, answer.json["message"])
    pairs = [("Action", action), ("Version", "2012-11-05"), *flat(action, fields)]
    answer = server.http("POST", "/", urlencode(pairs), {"Content-Type": "application/x-www-form-urlencoded"})
    assert answer.status >= 400, answer.body
    error = ElementTree.fromstring(answer.body).find(f"{NAMESPACE}Error")
    assert error is not None
    assert error.findtext(f"{NAMESPACE}Type") == "Sender"
    return Refusal(answer.status, error.findtext(f"{NAMESPACE}Code") or "", error.findtext(f"{NAMESPACE}Message") or "")


class Queues:
    """Queues in the states that the errors below need."""

    def __init__(self, client: Any, make_queue: MakeQueue) -> None:
        self.client = client
        self.make = make_queue
        self.plain = make_queue(client)
        self.fifo = make_queue(client, fifo=True)

    def arn(self, url: str) -> str:
        return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{url.rpartition('/')[2]}"

    def deleted_handle(self) -> str:
        self.client.send_message(QueueUrl=self.plain, MessageBody="x")
        handle: str = receive(self.client, self.plain)[0]["ReceiptHandle"]
        self.client.delete_message(QueueUrl=self.plain, ReceiptHandle=handle)
        return handle

    def returned_fifo_handle(self) -> str:
        self.client.send_message(
            QueueUrl=self.fifo, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="returned"
        )
        handle: str = receive(self.client, self.fifo, VisibilityTimeout=0)[0]["ReceiptHandle"]
        return handle

    def purged(self) -> str:
        url = self.make(self.client)
        self.client.purge_queue(QueueUrl=url)
        return url

    def permitted(self) -> str:
        url = self.make(self.client)
        for number in range(20):
            self.client.add_permission(
                QueueUrl=url, Label=f"l{number}", AWSAccountIds=["111111111111"], Actions=["SendMessage"]
            )
        return url


def batch(*entries: dict[str, Any]) -> dict[str, Any]:
    """The entries of a batch, with ids."""
    return {"Entries": [{"Id": str(number), **entry} for number, entry in enumerate(entries)]}


Case = tuple[str, Callable[[Queues], dict[str, Any]], int, str, str]

CASES: dict[str, Case] = {
    "a queue that is not there": (
        "GetQueueUrl",
        lambda q: {"QueueName": "not-there"},
        400,
        LEGACY + "NonExistentQueue",
        "The specified queue does not exist{of the protocol}.",
    ),
    "a batch without an id of deduplication": (
        "SendMessageBatch",
        lambda q: {"QueueUrl": q.fifo, **batch({"MessageBody": "x", "MessageGroupId": "g"})},
        400,
        "InvalidParameterValue",
        NO_DEDUPLICATION,
    ),
    "a batch without a group": (
        "SendMessageBatch",
        lambda q: {"QueueUrl": q.fifo, **batch({"MessageBody": "x", "MessageDeduplicationId": "d"})},
        400,
        "InvalidParameterValue",
        "The request must contain the parameter MessageGroupId.",
    ),
    "a message without a group": (
        "SendMessage",
        lambda q: {"QueueUrl": q.fifo, "MessageBody": "x", "MessageDeduplicationId": "d"},
        400,
        "MissingParameter",
        "The request must contain the parameter MessageGroupId.",
    ),
    "a message without an id of deduplication": (
        "SendMessage",
        lambda q: {"QueueUrl": q.fifo, "MessageBody": "x", "MessageGroupId": "g"},
        400,
        "InvalidParameterValue",
        NO_DEDUPLICATION,
    ),
    "a delay of one message of a FIFO queue": (
        "SendMessage",
        lambda q: {
            "QueueUrl": q.fifo,
            "MessageBody": "x",
            "MessageGroupId": "g",
            "MessageDeduplicationId": "d",
            "DelaySeconds": 3,
        },
        400,
        "InvalidParameterValue",
        f"Value 3 for parameter DelaySeconds is invalid. {QUEUE_TYPE}",
    ),
    "an id of deduplication in a standard queue": (
        "SendMessage",
        lambda q: {"QueueUrl": q.plain, "MessageBody": "x", "MessageDeduplicationId": "d"},
        400,
        "InvalidParameterValue",
        f"Value d for parameter MessageDeduplicationId is invalid. {QUEUE_TYPE}",
    ),
    "an attempt in a standard queue": (
        "ReceiveMessage",
        lambda q: {"QueueUrl": q.plain, "ReceiveRequestAttemptId": "a"},
        400,
        "InvalidParameterValue",
        f"Value a for parameter ReceiveRequestAttemptId is invalid. {QUEUE_TYPE}",
    ),
    "a delay beyond its bounds": (
        "SendMessage",
        lambda q: {"QueueUrl": q.plain, "MessageBody": "x", "DelaySeconds": 901},
        400,
        "InvalidParameterValue",
        "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.",
    ),
    "too many messages of a receive": (
        "ReceiveMessage",
        lambda q: {"QueueUrl": q.plain, "MaxNumberOfMessages": 11},
        400,
        "InvalidParameterValue",
        "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.",
    ),
    "a wait beyond its bounds": (
        "ReceiveMessage",
        lambda q: {"QueueUrl": q.plain, "WaitTimeSeconds": 21},
        400,
        "InvalidParameterValue",
        "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.",
    ),
    "a timeout of a receive beyond its bounds": (
        "ReceiveMessage",
        lambda q: {"QueueUrl": q.plain, "VisibilityTimeout": 43_201},
        400,
        "InvalidParameterValue",
        "Value 43201 for parameter VisibilityTimeout is invalid. Reason: Must be >= 0 and <= 43200, if provided.",
    ),
    "a character that is not allowed": (
        "SendMessage",
        lambda q: {"QueueUrl": q.plain, "MessageBody": "a\x00b"},
        400,
        "InvalidMessageContents",
        (
            "Invalid binary character '#x0' was found in the message body, the set of allowed characters is "
            "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
        ),
    ),
    "an empty attribute": (
        "SendMessage",
        lambda q: {
            "QueueUrl": q.plain,
            "MessageBody": "x",
            "MessageAttributes": {"a": {"DataType": "String", "StringValue": ""}},
        },
        400,
        "InvalidParameterValue",
        "Message (user) attribute 'a' must contain a non-empty value of type 'String'.",
    ),
    "a handle that is none": (
        "DeleteMessage",
        lambda q: {"QueueUrl": q.plain, "ReceiptHandle": "garbage"},
        404,
        "ReceiptHandleIsInvalid",
        'The input receipt handle "garbage" is not a valid receipt handle.',
    ),
    "a timeout for a handle that is none": (
        "ChangeMessageVisibility",
        lambda q: {"QueueUrl": q.plain, "ReceiptHandle": "garbage", "VisibilityTimeout": 1},
        404,
        "ReceiptHandleIsInvalid",
        'The input receipt handle "garbage" is not a valid receipt handle.',
    ),
    "a timeout for a deleted message": (
        "ChangeMessageVisibility",
        lambda q: {"QueueUrl": q.plain, "ReceiptHandle": q.deleted_handle(), "VisibilityTimeout": 1},
        400,
        "InvalidParameterValue",
        f"Value {{handle}} for parameter ReceiptHandle is invalid. {NOT_RECEIVED}",
    ),
    "a FIFO message that came back": (
        "DeleteMessage",
        lambda q: {"QueueUrl": q.fifo, "ReceiptHandle": q.returned_fifo_handle()},
        400,
        "InvalidParameterValue",
        "Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.",
    ),
    "a second purge": (
        "PurgeQueue",
        lambda q: {"QueueUrl": q.purged()},
        403,
        LEGACY + "PurgeQueueInProgress",
        "Only one PurgeQueue operation on {name} is allowed every 60 seconds.",
    ),
    "one statement too many": (
        "AddPermission",
        lambda q: {
            "QueueUrl": q.permitted(),
            "Label": "more",
            "AWSAccountIds": ["111111111111"],
            "Actions": ["SendMessage"],
        },
        403,
        "OverLimit",
        "21 Statements were found, maximum allowed is 20.",
    ),
    "a permission that is not there": (
        "RemovePermission",
        lambda q: {"QueueUrl": q.plain, "Label": "nothing"},
        400,
        "InvalidParameterValue",
        "Value nothing for parameter Label is invalid. Reason: can't find label.",
    ),
    "a permission without actions": (
        "AddPermission",
        lambda q: {"QueueUrl": q.plain, "Label": "l", "AWSAccountIds": ["111111111111"]},
        400,
        "MissingParameter",
        "The request must contain the parameter Actions.",
    ),
    "a permission of no one": (
        "AddPermission",
        lambda q: {"QueueUrl": q.plain, "Label": "l", "Actions": ["SendMessage"]},
        400,
        "MissingParameter",
        "The request must contain the parameter AWSAccountIds.",
    ),
    "no tags": (
        "TagQueue",
        lambda q: {"QueueUrl": q.plain, "Tags": {}},
        400,
        "MissingParameter",
        "The request must contain the parameter Tags.",
    ),
    "no keys of tags": (
        "UntagQueue",
        lambda q: {"QueueUrl": q.plain},
        400,
        "MissingParameter",
        "The request must contain the parameter TagKeys.",
    ),
    "an empty key of a tag": (
        "UntagQueue",
        lambda q: {"QueueUrl": q.plain, "TagKeys": ["a", ""]},
        400,
        "InvalidParameterValue",
        "Tag keys must be between 1 and 128 characters in length.",
    ),
    "a long key of a tag": (
        "UntagQueue",
        lambda q: {"QueueUrl": q.plain, "TagKeys": ["k" * 129]},
        400,
        "InvalidParameterValue",
        "Tag keys must be between 1 and 128 characters in length.",
    ),
    "no attributes": (
        "SetQueueAttributes",
        lambda q: {"QueueUrl": q.plain, "Attributes": {}},
        400,
        "MissingParameter",
        "The request must contain the parameter Attribute.Name.",
    ),
    "an empty batch": (
        "DeleteMessageBatch",
        lambda q: {"QueueUrl": q.plain, "Entries": []},
        400,
        LEGACY + "EmptyBatchRequest",
        "There should be at least one DeleteMessageBatchRequestEntry in the request.",
    ),
    "eleven entries": (
        "DeleteMessageBatch",
        lambda q: {"QueueUrl": q.plain, **batch(*[{"ReceiptHandle": "x"}] * 11)},
        400,
        LEGACY + "TooManyEntriesInBatchRequest",
        "Maximum number of entries per request are 10. You have sent 11.",
    ),
    "two entries with one id": (
        "DeleteMessageBatch",
        lambda q: {"QueueUrl": q.plain, "Entries": [{"Id": "a", "ReceiptHandle": "x"}] * 2},
        400,
        LEGACY + "BatchEntryIdsNotDistinct",
        "Id a repeated.",
    ),
    "an id with a colon": (
        "SendMessageBatch",
        lambda q: {"QueueUrl": q.plain, "Entries": [{"Id": "a:b", "MessageBody": "x"}]},
        400,
        LEGACY + "InvalidBatchEntryId",
        (
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
            "It can be at most 80 letters long."
        ),
    ),
    "too long a batch": (
        "SendMessageBatch",
        lambda q: {"QueueUrl": q.plain, **batch({"MessageBody": "x" * 1_048_576}, {"MessageBody": "x"})},
        400,
        LEGACY + "BatchRequestTooLong",
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.",
    ),
    "too long a message": (
        "SendMessage",
        lambda q: {"QueueUrl": q.plain, "MessageBody": "x" * 1_048_577},
        400,
        "InvalidParameterValue",
        "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.",
    ),
    "an attribute of FIFO queues": (
        "SetQueueAttributes",
        lambda q: {"QueueUrl": q.plain, "Attributes": {"FifoQueue": "true"}},
        400,
        "InvalidAttributeName",
        "Unknown Attribute FifoQueue.",
    ),
    "another kind of queue": (
        "SetQueueAttributes",
        lambda q: {"QueueUrl": q.fifo, "Attributes": {"FifoQueue": "false"}},
        400,
        "InvalidAttributeValue",
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
    ),
    "a queue with other attributes": (
        "CreateQueue",
        lambda q: {"QueueName": q.plain.rpartition("/")[2], "Attributes": {"DelaySeconds": "7"}},
        400,
        "QueueAlreadyExists",
        "A queue already exists with the same name and a different value for attribute DelaySeconds",
    ),
    "both kinds of encryption": (
        "SetQueueAttributes",
        lambda q: {"QueueUrl": q.plain, "Attributes": {"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "true"}},
        400,
        "InvalidAttributeName",
        ("You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."),
    ),
    "a dead-letter queue that is none": (
        "SetQueueAttributes",
        lambda q: {
            "QueueUrl": q.plain,
            "Attributes": {"RedrivePolicy": '{"deadLetterTargetArn": "dummy", "maxReceiveCount": 42}'},
        },
        400,
        "InvalidParameterValue",
        (
            'Value {"deadLetterTargetArn": "dummy", "maxReceiveCount": 42} for parameter RedrivePolicy is invalid. '
            "Reason: Invalid value for deadLetterTargetArn."
        ),
    ),
    "a move from a queue without sources": (
        "StartMessageMoveTask",
        lambda q: {"SourceArn": q.arn(q.plain)},
        400,
        "InvalidParameterValue",
        "Source queue must be configured as a Dead Letter Queue.",
    ),
    "a move from a queue that is not there": (
        "ListMessageMoveTasks",
        lambda q: {"SourceArn": q.arn("not-there")},
        404,
        "ResourceNotFoundException",
        "The resource that you specified for the SourceArn parameter doesn't exist.",
    ),
    "the handle of no move": (
        "CancelMessageMoveTask",
        lambda q: {"TaskHandle": "foobared"},
        400,
        "InvalidParameterValue",
        "Value for parameter TaskHandle is invalid.",
    ),
}


@both
@pytest.mark.parametrize("name", CASES)
def test_an_error(memory_sqs: SqsServer, make_queue: MakeQueue, protocol: str, name: str) -> None:
    action, fields_for, status, code, text = CASES[name]
    fields = fields_for(Queues(memory_sqs.anyone, make_queue))
    text = text.replace("{handle}", fields.get("ReceiptHandle", ""))
    text = text.replace("{name}", fields.get("QueueUrl", "").rpartition("/")[2])
    text = text.replace("{of the protocol}", " for this wsdl version" if protocol == QUERY else "")
    assert refusal(memory_sqs, protocol, action, fields) == Refusal(status, code, text)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            "Action=AddPermission&Label=l&AWSAccountId.1=111111111111&Actions=",
            "The request must contain the parameter Actions.",
        ),
        (
            "Action=AddPermission&Label=l&ActionName.1=SendMessage&AWSAccountIds=",
            "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify.",
        ),
        ("Action=UntagQueue&TagKeys=", "Tag keys must be between 1 and 128 characters in length."),
        ("Action=GetQueueAttributes&AttributeNames=", "Unknown Attribute ."),
    ],
)
def test_empty_lists_of_botocore_by_query(
    memory_sqs: SqsServer, make_queue: MakeQueue, parameters: str, text: str
) -> None:
    """It writes them under their names in the service model, and AWS reads them as lists of one empty text."""
    path = f"/{ACCOUNT}/{make_queue(memory_sqs.anyone).rpartition('/')[2]}"
    answer = memory_sqs.http("POST", path, parameters)
    assert answer.status == 400
    assert f"<Message>{text}</Message>" in answer.body.decode()


@both
def test_a_refused_fifo_batch_sends_nothing(memory_sqs: SqsServer, make_queue: MakeQueue, protocol: str) -> None:
    url = make_queue(memory_sqs.anyone, fifo=True, ContentBasedDeduplication="true")
    entries = batch({"MessageBody": "good", "MessageGroupId": "g"}, {"MessageBody": "without a group"})
    assert refusal(memory_sqs, protocol, "SendMessageBatch", {"QueueUrl": url, **entries}).status == 400
    assert counts(memory_sqs.anyone, url) == (0, 0, 0)


@both
def test_the_trace_of_a_request(memory_sqs: SqsServer, make_queue: MakeQueue, protocol: str) -> None:
    """The header is the trace unless the message says another."""
    url = make_queue(memory_sqs.anyone)
    own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=own"}}
    for more, expected in (({}, "Root=of-the-request"), ({"MessageSystemAttributes": own}, "Root=own")):
        fields = {"QueueUrl": url, "MessageBody": "x", **more}
        headers = {"X-Amzn-Trace-Id": "Root=of-the-request"}
        if protocol == JSON:
            headers["X-Amz-Target"] = "AmazonSQS.SendMessage"
            body = json.dumps(fields)
        else:
            body = urlencode([("Action", "SendMessage"), *flat("SendMessage", fields)])
        assert memory_sqs.http("POST", "/", body, headers).status == 200
        (message,) = receive(memory_sqs.anyone, url)
        assert message["Attributes"]["AWSTraceHeader"] == expected


@both
def test_a_url_of_a_queue_may_end_with_a_slash(memory_sqs: SqsServer, make_queue: MakeQueue, protocol: str) -> None:
    """The examples of AWS's API reference have one."""
    url = make_queue(memory_sqs.anyone)
    fields = {"QueueUrl": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{url.rpartition('/')[2]}/", "MessageBody": "x"}
    assert ask(memory_sqs, protocol, "SendMessage", fields).code == ""
    if protocol == QUERY:
        path = f"/{ACCOUNT}/{url.rpartition('/')[2]}/"
        assert memory_sqs.http("POST", f"{path}?Action=SendMessage&MessageBody=y").status == 200
    assert counts(memory_sqs.anyone, url) == (1 if protocol == JSON else 2, 0, 0)
