"""What AWS refuses, and how: batches as a whole or by entry, values, policies, ARNs, and texts of other types.

The texts are AWS's, as others recorded them from it.
"""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

from tests.protocol.conftest import MakeQueue
from tests.protocol.test_sqs_as_aws import ask, refused
from tests.rigs.penstock_process import wait_until
from tests.services.sqs_server import SqsServer, bodies, counts, receive, running

INVALID = (400, "InvalidParameterValue")
BAD_ATTRIBUTE = (400, "InvalidAttributeValue")


def text_of(server: SqsServer, action: str, **fields: Any) -> str:
    """The text of a request's error, without the checks that clients make."""
    answer = ask(server, action, **fields)
    assert answer.status == 400
    return str(answer.json["message"])


def failed(server: SqsServer, action: str, url: str, **entry: Any) -> tuple[str, str]:
    """The code and the text of a batch whose only entry fails by itself."""
    answer = ask(server, action, QueueUrl=url, Entries=[{"Id": "a", **entry}]).json
    assert "Successful" not in answer
    (problem,) = answer["Failed"]
    assert (problem["Id"], problem["SenderFault"]) == ("a", True)
    return problem["Code"], problem["Message"]


def test_what_an_entry_lacks(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    missing, contains = "MissingParameter", "The request must contain the parameter"
    body = f"{contains} SendMessageBatchRequestEntry.1.MessageBody."
    assert failed(memory_sqs, "SendMessageBatch", url) == (missing, body)
    assert failed(memory_sqs, "SendMessageBatch", url, MessageBody="") == (missing, body)
    for handle in ({}, {"ReceiptHandle": ""}, {"ReceiptHandle": " "}):
        no_handle = (missing, f"{contains} ReceiptHandle.")
        assert failed(memory_sqs, "DeleteMessageBatch", url, **handle) == no_handle
        assert failed(memory_sqs, "ChangeMessageVisibilityBatch", url, VisibilityTimeout=1, **handle) == no_handle
    timeout = f"{contains} ChangeMessageVisibilityBatchRequestEntry.1.VisibilityTimeout."
    assert failed(memory_sqs, "ChangeMessageVisibilityBatch", url, ReceiptHandle="x") == (missing, timeout)


@pytest.mark.parametrize("action", ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"])
def test_what_a_batch_lacks(memory_sqs: SqsServer, make_queue: MakeQueue, action: str) -> None:
    url = make_queue(memory_sqs.anyone)
    assert text_of(memory_sqs, action, QueueUrl=url) == "The request must contain the parameter Entries."
    entries = [{"Id": "a", "MessageBody": "x", "ReceiptHandle": "x"}, {"MessageBody": "x"}]
    no_id = f"The request must contain the parameter {action}RequestEntry.2.Id."
    assert text_of(memory_sqs, action, QueueUrl=url, Entries=entries) == no_id
    assert counts(memory_sqs.anyone, url) == (0, 0, 0)


@pytest.mark.parametrize(
    ("wrong", "code", "text"),
    [
        (
            {"MessageBody": ""},
            "MissingParameter",
            "The request must contain the parameter SendMessageBatchRequestEntry.2.MessageBody.",
        ),
        (
            {"DelaySeconds": 3},
            "InvalidParameterValue",
            (
                "Value 3 for parameter DelaySeconds is invalid. "
                "Reason: The request include parameter that is not valid for this queue type."
            ),
        ),
        (
            {"MessageBody": "x" * 1025},
            "InvalidParameterValue",
            "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes.",
        ),
        (
            {"MessageGroupId": "a group"},
            "InvalidParameterValue",
            (
                "Value a group for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include "
                "alphanumeric and punctuation characters. 1 to 128 in length."
            ),
        ),
        (
            {"MessageAttributes": {"a": {"DataType": "String", "StringValue": ""}}},
            "InvalidParameterValue",
            "Message (user) attribute 'a' must contain a non-empty value of type 'String'.",
        ),
    ],
)
def test_an_entry_of_a_fifo_batch_fails_by_itself(
    memory_sqs: SqsServer, make_queue: MakeQueue, wrong: dict[str, Any], code: str, text: str
) -> None:
    """As AWS documents it: the result of sending each message is reported individually."""
    client = memory_sqs.anyone
    url = make_queue(client, fifo=True, ContentBasedDeduplication="true", MaximumMessageSize=1024)
    good = {"MessageGroupId": "g"}
    entries = [
        {"Id": "a", "MessageBody": "first", **good},
        {"Id": "b", "MessageBody": "wrong", **good, **wrong},
        {"Id": "c", "MessageBody": "last", **good},
    ]
    answer = ask(memory_sqs, "SendMessageBatch", QueueUrl=url, Entries=entries).json
    assert [each["Id"] for each in answer["Successful"]] == ["a", "c"]
    assert answer["Failed"] == [{"Id": "b", "Code": code, "Message": text, "SenderFault": True}]
    received = client.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["SequenceNumber"]
    )["Messages"]
    assert [(each["Body"], each["Attributes"]["SequenceNumber"]) for each in received] == [
        ("first", answer["Successful"][0]["SequenceNumber"]),
        ("last", answer["Successful"][1]["SequenceNumber"]),
    ]


@pytest.mark.parametrize("lists", [{"StringListValues": ["x"]}, {"StringListValues": []}, {"BinaryListValues": []}])
@pytest.mark.parametrize("field", ["MessageAttributes", "MessageSystemAttributes"])
def test_lists_of_values_refuse_the_request(
    memory_sqs: SqsServer, make_queue: MakeQueue, field: str, lists: dict[str, list[str]]
) -> None:
    """As those who sent on what they had received found out: their clients had filled in the empty lists."""
    url = make_queue(memory_sqs.anyone)
    wrong = {"MessageBody": "x", field: {"AWSTraceHeader": {"DataType": "String", "StringValue": "x", **lists}}}
    refusal = "Message attribute list values in {} operation are not supported."
    assert text_of(memory_sqs, "SendMessage", QueueUrl=url, **wrong) == refusal.format("SendMessage")
    entries = [{"Id": "a", "MessageBody": "x"}, {"Id": "b", **wrong}]
    assert text_of(memory_sqs, "SendMessageBatch", QueueUrl=url, Entries=entries) == refusal.format("SendMessageBatch")
    assert counts(memory_sqs.anyone, url) == (0, 0, 0)


def test_visibility_timeouts_of_messages(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    invalid = "Value {} for parameter VisibilityTimeout is invalid. Reason: {}"
    for value in (-1, 43_201):
        single = text_of(
            memory_sqs, "ChangeMessageVisibility", QueueUrl=url, ReceiptHandle="x", VisibilityTimeout=value
        )
        assert single == invalid.format(value, "Must be between 0 and 43200.")
        in_batch = failed(memory_sqs, "ChangeMessageVisibilityBatch", url, ReceiptHandle="x", VisibilityTimeout=value)
        reason = "VisibilityTimeout must be an integer between 0 and 43200."
        assert in_batch == ("InvalidParameterValue", invalid.format(value, reason))


def test_other_types_stand_for_texts(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    assert ask(memory_sqs, "SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": 0}).status == 200
    refusal = text_of(memory_sqs, "SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": True})
    assert refusal == "Invalid value for the parameter DelaySeconds."
    attributes = {"a": {"DataType": "String", "StringValue": False}}
    assert ask(memory_sqs, "SendMessage", QueueUrl=url, MessageBody=7, MessageAttributes=attributes).status == 200
    (message,) = receive(memory_sqs.anyone, url)
    assert (message["Body"], message["MessageAttributes"]["a"]["StringValue"]) == ("7", "false")
    not_expected = text_of(memory_sqs, "SendMessage", QueueUrl=url, MessageBody={})
    assert not_expected == "Start of structure or map found where not expected."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DelaySeconds", "901"),
        ("MaximumMessageSize", "1023"),
        ("MessageRetentionPeriod", "59"),
        ("VisibilityTimeout", ""),
        ("ReceiveMessageWaitTimeSeconds", "2.5"),
        ("SqsManagedSseEnabled", "maybe"),
        ("KmsDataKeyReusePeriodSeconds", "59"),
        ("Policy", "{}"),
    ],
)
def test_values_of_attributes(memory_sqs: SqsServer, make_queue: MakeQueue, name: str, value: str) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    expected = (*BAD_ATTRIBUTE, f"Invalid value for the parameter {name}.")
    assert refused(lambda: client.set_queue_attributes(QueueUrl=url, Attributes={name: value})) == expected
    assert refused(lambda: client.create_queue(QueueName="never", Attributes={name: value})) == expected


def test_no_attribute_is_given(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    for text in (
        text_of(memory_sqs, "SetQueueAttributes", QueueUrl=url),
        text_of(memory_sqs, "SetQueueAttributes", QueueUrl=url, Attributes={}),
    ):
        assert text == "The request must contain the parameter Attribute.Name."


def test_names_of_queues(memory_sqs: SqsServer) -> None:
    unnamed = "Value for parameter QueueName is invalid. Reason: Must specify a queue name."
    assert text_of(memory_sqs, "CreateQueue") == unnamed
    assert text_of(memory_sqs, "CreateQueue", QueueName="") == "Queue name cannot be empty"
    assert text_of(memory_sqs, "GetQueueUrl") == text_of(memory_sqs, "GetQueueUrl", QueueName="") == unnamed


def test_dead_letter_queues_of_the_wrong_kind(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)

    def policy_for(resource: str) -> str:
        return json.dumps({"maxReceiveCount": "3", "deadLetterTargetArn": f"arn:aws:{resource}"})

    def set_target(resource: str) -> object:
        return client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy_for(resource)})

    for resource, reason in (
        ("sns:us-east-1:000000000000:topic", "Only SQS queues are valid resources for deadLetterTargetArn."),
        ("sqs:us-east-1:000000000000:x.fifo", "Dead-letter queue must be same type of queue as the source.."),
        ("sqs:us-east-1:000000000000:not-there", "Dead letter target does not exist."),
    ):
        text = f"Value {policy_for(resource)} for parameter RedrivePolicy is invalid. Reason: {reason}"
        assert refused(lambda resource=resource: set_target(resource)) == (*INVALID, text)  # type: ignore[misc]


def test_throughput_by_group_needs_the_scope(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client, fifo=True)
    limit = {"FifoThroughputLimit": "perMessageGroupId"}
    status, code, text = refused(lambda: client.set_queue_attributes(QueueUrl=url, Attributes=limit))
    assert (status, code) == BAD_ATTRIBUTE
    assert "allowed only when the value for DeduplicationScope is messageGroup" in text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("", {"StringValue": "v"}, "The request must contain non-empty message (user) attribute names."),
        ("n" * 257, {"StringValue": "v"}, "Message (user) attribute name must be shorter than 256 bytes."),
        (".n", {"StringValue": "v"}, "Message (user) attribute name must not begin with character '.'."),
        ("n.", {"StringValue": "v"}, "Message (user) attribute name must not end with character '.'."),
        ("n..n", {"StringValue": "v"}, "Message (user) attribute name must not have successive '.' characters."),
        (
            "Amazon.n",
            {"StringValue": "v"},
            (
                "You can't use message attribute names beginning with 'AWS.' or 'Amazon'. "
                "These strings are reserved for internal use."
            ),
        ),
        ("n", {"DataType": None}, "The message (user) attribute 'n' must contain a non-empty message attribute value."),
        (
            "n",
            {"DataType": None, "StringValue": "v"},
            "The message (user) attribute 'n' must contain a non-empty message attribute type.",
        ),
        (
            "n",
            {"DataType": "String." + "t" * 250, "StringValue": "v"},
            "Message (user) attribute type must be shorter than 256 bytes.",
        ),
        (
            "n",
            {"DataType": "Number", "StringValue": "v"},
            "Can't cast the value of message (user) attribute 'n' to a number.",
        ),
    ],
)
def test_message_attributes(
    memory_sqs: SqsServer, make_queue: MakeQueue, name: str, value: dict[str, str | None], text: str
) -> None:
    url = make_queue(memory_sqs.anyone)
    attributes = {name: {"DataType": "String", **value}}
    assert text_of(memory_sqs, "SendMessage", QueueUrl=url, MessageBody="x", MessageAttributes=attributes) == text


def test_actions_that_no_permission_gives(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    for action, reason in (
        ("CreateQueue", "Only the queue owner is allowed to invoke this action."),
        ("SendMessageBatch", "Please refer to the appropriate WSDL for a list of valid actions."),
        ("Nonsense", "Please refer to the appropriate WSDL for a list of valid actions."),
    ):
        given = {"Label": "a", "AWSAccountIds": ["111111111111"], "Actions": [action]}
        text = f"Value SQS:{action} for parameter ActionName is invalid. Reason: {reason}"
        assert text_of(memory_sqs, "AddPermission", QueueUrl=url, **given) == text


def test_moves_and_pages(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    dead, fifo = make_queue(client), make_queue(client, fifo=True)
    arn, fifo_arn = (
        client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        for url in (dead, fifo)
    )
    make_queue(client, RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1}))
    form = "You must use this format to specify the {}: arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
    for given, text in (
        ({"SourceArn": ""}, form.format("SourceArn")),
        ({"SourceArn": arn, "DestinationArn": "x"}, form.format("DestinationArn")),
        ({"SourceArn": arn, "DestinationArn": arn}, "Source queue arn and destination queue arn cannot be the same."),
        (
            {"SourceArn": arn, "DestinationArn": fifo_arn},
            "The source queue and destination queue must be of the same queue type.",
        ),
        (
            {"SourceArn": arn, "MaxNumberOfMessagesPerSecond": 501},
            (
                "Value for parameter MaxNumberOfMessagesPerSecond is invalid. "
                "Reason: You must enter a number that's between 1 and 500."
            ),
        ),
    ):
        assert text_of(memory_sqs, "StartMessageMoveTask", **given) == text
    for value in (0, 1001):
        text = text_of(memory_sqs, "ListQueues", MaxResults=value)
        assert (
            text
            == "Value for parameter MaxResults is invalid. Reason: MaxResults must be an integer between 1 and 1000."
        )


def test_a_signed_get_may_change_something(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)

    def get(**parameters: str) -> tuple[int, bytes]:
        request = AWSRequest("GET", f"{url}?{urlencode(parameters)}")
        SigV4Auth(Credentials("anyone", "secret"), "sqs", "us-east-1").add_auth(request)
        parts = urlsplit(request.url)
        answer = memory_sqs.http("GET", f"{parts.path}?{parts.query}", b"", dict(request.headers.items()))
        return answer.status, answer.body

    assert get(Action="SendMessage", MessageBody="sent by GET")[0] == 200
    status, body = get(Action="ReceiveMessage")
    assert (status, b"<Body>sent by GET</Body>" in body) == (200, True)
    assert get(Action="DeleteQueue")[0] == 200
    assert refused(lambda: memory_sqs.anyone.send_message(QueueUrl=url, MessageBody="x"))[1].endswith(
        "NonExistentQueue"
    )


def test_the_name_of_a_deleted_queue(tmp_path: Path) -> None:
    with running(tmp_path, "--memory", environment={"PENSTOCK_SQS__RECREATE_AFTER_S": "60"}) as server:
        client = server.anyone
        url = client.create_queue(QueueName="once")["QueueUrl"]
        client.delete_queue(QueueUrl=url)
        assert refused(lambda: client.create_queue(QueueName="once")) == (
            400,
            "AWS.SimpleQueueService.QueueDeletedRecently",
            "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
        )
        with pytest.raises(client.exceptions.QueueDeletedRecently):
            client.create_queue(QueueName="once")
        client.create_queue(QueueName="another")


def test_the_name_of_a_deleted_queue_is_free_again(tmp_path: Path) -> None:
    with running(tmp_path, "--memory", environment={"PENSTOCK_SQS__RECREATE_AFTER_S": "1"}) as server:
        client = server.anyone
        client.delete_queue(QueueUrl=client.create_queue(QueueName="again")["QueueUrl"])

        def is_free() -> bool:
            try:
                return bool(client.create_queue(QueueName="again"))
            except client.exceptions.QueueDeletedRecently:
                return False

        wait_until(is_free)


def test_a_standard_batch_goes_on_after_a_failure(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    entries = [{"Id": "a", "MessageBody": "one"}, {"Id": "b"}, {"Id": "c", "MessageBody": "two"}]
    answer = ask(memory_sqs, "SendMessageBatch", QueueUrl=url, Entries=entries).json
    assert [each["Id"] for each in answer["Successful"]] == ["a", "c"]
    assert [each["Id"] for each in answer["Failed"]] == ["b"]
    assert bodies(receive(memory_sqs.anyone, url)) == ["one", "two"]
