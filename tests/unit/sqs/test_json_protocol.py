"""The JSON protocol: what AWS's model says, what botocore makes of our answers, and what clients get wrong."""

import json

import botocore.session  # type: ignore[import-untyped]
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.parsers import create_parser  # type: ignore[import-untyped]
from msgspec import structs

from penstock.sqs import model
from penstock.sqs.errors import ErrorKind, SqsError, missing_parameter
from penstock.sqs.model import REQUESTS, Shape
from penstock.sqs.wire import json_protocol

RESPONSES: dict[str, type[Shape]] = {
    "CancelMessageMoveTask": model.CancelMessageMoveTaskResponse,
    "ChangeMessageVisibilityBatch": model.BatchResponse,
    "CreateQueue": model.QueueUrlResponse,
    "DeleteMessageBatch": model.BatchResponse,
    "GetQueueAttributes": model.GetQueueAttributesResponse,
    "GetQueueUrl": model.QueueUrlResponse,
    "ListDeadLetterSourceQueues": model.ListDeadLetterSourceQueuesResponse,
    "ListMessageMoveTasks": model.ListMessageMoveTasksResponse,
    "ListQueueTags": model.ListQueueTagsResponse,
    "ListQueues": model.ListQueuesResponse,
    "ReceiveMessage": model.ReceiveMessageResponse,
    "SendMessage": model.SendMessageResponse,
    "SendMessageBatch": model.SendMessageBatchResponse,
    "StartMessageMoveTask": model.TaskHandleResponse,
}
MD5 = "0cc175b9c0f1b6a831c399e269772661"  # of "a"; clients check it
client = botocore.session.get_session().create_client(
    "sqs", region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s"
)
aws = client.meta.service_model


def refusal(action: str, body: bytes) -> SqsError:
    with pytest.raises(SqsError) as caught:
        json_protocol.decode(action, body)
    return caught.value


def test_the_actions_are_those_of_aws() -> None:
    assert set(REQUESTS) == set(aws.operation_names)


@pytest.mark.parametrize("action", sorted(REQUESTS))
def test_requests_have_the_fields_that_aws_has(action: str) -> None:
    shape = aws.operation_model(action).input_shape
    fields = structs.fields(REQUESTS[action])
    assert {field.encode_name for field in fields} == set(shape.members)
    assert {field.encode_name for field in fields if field.required} == set(shape.required_members)


@pytest.mark.parametrize("action", sorted(REQUESTS))
def test_responses_have_the_fields_that_aws_has(action: str) -> None:
    shape = aws.operation_model(action).output_shape
    if shape is None:
        assert action not in RESPONSES
    else:
        assert {field.encode_name for field in structs.fields(RESPONSES[action])} == set(shape.members)


@pytest.mark.parametrize("entry", ["MessageAttributeValue", "BatchResultErrorEntry", "SendMessageBatchRequestEntry"])
def test_parts_have_the_fields_that_aws_has(entry: str) -> None:
    names = {field.encode_name for field in structs.fields(getattr(model, entry))}
    assert names == set(aws.shape_for(entry).members)


def test_received_messages_and_tasks_have_the_fields_that_aws_has() -> None:
    for ours, theirs in (
        (model.ReceivedMessage, "Message"),
        (model.MessageMoveTask, "ListMessageMoveTasksResultEntry"),
        (model.SendMessageBatchResultEntry, "SendMessageBatchResultEntry"),
    ):
        assert {field.encode_name for field in structs.fields(ours)} == set(aws.shape_for(theirs).members)


def test_a_request_is_decoded() -> None:
    body = {
        "QueueUrl": "http://h/1/q",
        "MessageBody": "naïve",
        "DelaySeconds": 5,
        "MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": "AAE="}},
        "SomethingNew": [1],
    }
    request = json_protocol.decode("SendMessage", json.dumps(body).encode())
    attributes = {"a": model.MessageAttributeValue("Binary", binary_value=b"\0\1")}
    assert request == model.SendMessageRequest("http://h/1/q", "naïve", 5, attributes)


def test_an_empty_body_is_an_empty_object() -> None:
    assert json_protocol.decode("ListQueues", b"") == model.ListQueuesRequest()


def test_null_is_a_field_that_was_not_sent() -> None:
    body = b'{"QueueUrl":"u","MessageBody":"b","MessageAttributes":null,"DelaySeconds":null}'
    assert json_protocol.decode("SendMessage", body) == model.SendMessageRequest("u", "b")
    missing = refusal("SendMessage", b'{"QueueUrl":"u","MessageBody":null}')
    assert missing.kind is ErrorKind.MISSING_PARAMETER
    assert "MessageBody" in missing.message


@pytest.mark.parametrize(
    ("action", "body", "name"),
    [
        ("SendMessage", b'{"QueueUrl":"u"}', "MessageBody"),
        ("AddPermission", b'{"QueueUrl":"u","Label":"l"}', "AWSAccountIds"),
        ("SendMessageBatch", b'{"QueueUrl":"u"}', "Entries"),
        ("SendMessageBatch", b'{"QueueUrl":"u","Entries":[{"Id":"1"},{}]}', "SendMessageBatchRequestEntry.2.Id"),
        ("SetQueueAttributes", b'{"QueueUrl":"u"}', "Attribute.Name"),
    ],
)
def test_a_missing_field_is_named(action: str, body: bytes, name: str) -> None:
    error = refusal(action, body)
    assert error.kind is ErrorKind.MISSING_PARAMETER
    assert error.message == missing_parameter(name).message


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (b'"DelaySeconds":5.5', "DelaySeconds"),
        (b'"DelaySeconds":true', "DelaySeconds"),
        (b'"DelaySeconds":2147483648', "DelaySeconds"),
        (b'"DelaySeconds":' + b"9" * 5000, "DelaySeconds"),
        (b'"MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"?"}}', "MessageAttributes.BinaryValue"),
    ],
)
def test_a_wrong_type_is_named(value: bytes, name: str) -> None:
    error = refusal("SendMessage", b'{"QueueUrl":"u","MessageBody":"b",' + value + b"}")
    assert error.kind is ErrorKind.SERIALIZATION
    assert error.message.startswith(name + ":")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b'"DelaySeconds":"5"', "STRING_VALUE can not be converted to an Integer"),
        (b'"DelaySeconds":[]', "Start of list found where not expected."),
        (b'"MessageGroupId":{}', "Start of structure or map found where not expected."),
        (b'"MessageAttributes":[]', "Start of list found where not expected."),
    ],
)
def test_some_wrong_types_have_the_texts_of_aws(value: bytes, text: str) -> None:
    error = refusal("SendMessage", b'{"QueueUrl":"u","MessageBody":"b",' + value + b"}")
    assert (error.kind, error.message) == (ErrorKind.SERIALIZATION, text)


def test_numbers_and_booleans_may_stand_for_texts() -> None:
    value = b'{"DataType":"String","StringValue":true}'
    body = b'{"QueueUrl":"u","MessageBody":0,"MessageGroupId":1.5,"MessageAttributes":{"a":' + value + b"}}"
    attributes = {"a": model.MessageAttributeValue("String", string_value="true")}
    expected = model.SendMessageRequest("u", "0", message_attributes=attributes, message_group_id="1.5")
    assert json_protocol.decode("SendMessage", body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b"nonsense",
        b"\xff\xfe",
        b'{"QueueUrl":"\xff","MessageBody":"b"}',
        b'{"QueueUrl":"\\ud800","MessageBody":"b"}',
        b'{"QueueUrl":"u","MessageBody":"b"}{}',
        b'{"QueueUrl":"u","x":' + b"[" * 100_000,
        b'{"QueueUrl":null,"x":' + b"[" * 100_000,
    ],
)
def test_what_is_not_a_json_object_is_refused(body: bytes) -> None:
    assert refusal("SendMessage", body).kind is ErrorKind.SERIALIZATION


@pytest.mark.parametrize("as_bytes", [True, False])
def test_the_action_comes_from_the_target(as_bytes: bool) -> None:
    for action in REQUESTS:
        target = f"AmazonSQS.{action}"
        assert json_protocol.action_of(target.encode() if as_bytes else target) == action


@pytest.mark.parametrize("target", [b"", b"AmazonSQS.", b"AmazonSNS.Publish", b"SendMessage", b"\xff", "AmazonSQS.X"])
def test_another_target_is_refused(target: bytes | str) -> None:
    with pytest.raises(SqsError) as caught:
        json_protocol.action_of(target)
    assert caught.value.kind is ErrorKind.INVALID_ACTION


def test_what_is_not_set_is_not_sent() -> None:
    assert json_protocol.encode("DeleteMessage", model.EmptyResponse(), "r") == b""
    assert json_protocol.encode("ReceiveMessage", model.ReceiveMessageResponse(), "r") == b"{}"
    for response in (
        model.BatchResponse(),
        model.SendMessageBatchResponse(),
        model.ListDeadLetterSourceQueuesResponse(),
        model.ListMessageMoveTasksResponse(),
        model.ListQueuesResponse(),
        model.ListQueueTagsResponse(),
        model.GetQueueAttributesResponse(),
    ):
        assert json_protocol.encode("-", response, "r") == b"{}"


def test_botocore_reads_an_answer() -> None:
    attributes = {"n": model.MessageAttributeValue("Binary", binary_value=b"\0\xff")}
    message = model.ReceivedMessage("id", "handle", "md5", "<naïve>", {"SentTimestamp": "1"}, "md5a", attributes)
    body = json_protocol.encode("ReceiveMessage", model.ReceiveMessageResponse([message]), "r")
    answer = {"headers": {"x-amzn-requestid": "r-1"}, "status_code": 200, "body": body}
    parsed = create_parser("json").parse(answer, aws.operation_model("ReceiveMessage").output_shape)
    assert parsed["ResponseMetadata"]["RequestId"] == "r-1"
    assert parsed["Messages"] == [
        {
            "MessageId": "id",
            "ReceiptHandle": "handle",
            "MD5OfBody": "md5",
            "Body": "<naïve>",
            "Attributes": {"SentTimestamp": "1"},
            "MD5OfMessageAttributes": "md5a",
            "MessageAttributes": {"n": {"DataType": "Binary", "BinaryValue": b"\0\xff"}},
        }
    ]


@pytest.mark.parametrize("kind", ErrorKind)
def test_botocore_raises_the_modelled_exception(kind: ErrorKind) -> None:
    error = SqsError(kind, "what was wrong: <é>", retry_after_s=7)
    headers = {name.decode(): value.decode() for name, value in json_protocol.error_headers(error, "r-2")}
    answer = {"headers": headers, "status_code": kind.status, "body": json_protocol.encode_error(error, "r")}
    parsed = create_parser("json").parse(answer, aws.operation_model("SendMessage").output_shape)
    assert parsed["Error"]["Code"] == kind.query_code
    assert parsed["Error"]["QueryErrorCode"] == kind.name_in_json
    assert parsed["Error"]["Message"] == "what was wrong: <é>"
    assert parsed["Error"]["Type"] == ("Sender" if kind.status < 500 else "Receiver")
    assert parsed["ResponseMetadata"]["RequestId"] == "r-2"
    assert headers["retry-after"] == "7"
    assert headers["content-type"] == "application/x-amz-json-1.0"
    assert headers["x-amzn-errortype"] == kind.json_type
    modelled = [name for name in aws.shape_names if aws.shape_for(name).metadata.get("exception")]
    namespace, _, name = kind.json_type.partition("#")
    assert namespace == ("com.amazonaws.sqs" if name in modelled else "com.amazon.coral.service")
    if name in modelled:
        raised = client.exceptions.from_code(parsed["Error"]["QueryErrorCode"])
        assert raised is getattr(client.exceptions, name)


class Served(AWSResponse):  # type: ignore[misc]
    """An answer that needs no socket."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        super().__init__("", status, {name.decode(): value.decode() for name, value in headers}, None)
        self.body = body

    @property
    def content(self) -> bytes:
        return self.body


def test_a_client_of_botocore_is_served() -> None:
    """What a client really sends is decoded, and it raises what it is told."""
    seen: list[Shape] = []

    def serve(request: AWSPreparedRequest, **_: object) -> Served:
        action = json_protocol.action_of(request.headers["X-Amz-Target"])
        seen.append(json_protocol.decode(action, request.body))
        if action == "SendMessage":
            return Served(
                200,
                json_protocol.headers("r"),
                json_protocol.encode("SendMessage", model.SendMessageResponse("id", MD5), "r"),
            )
        error = SqsError(ErrorKind.QUEUE_DOES_NOT_EXIST, "no such queue")
        return Served(400, json_protocol.error_headers(error, "r"), json_protocol.encode_error(error, "r"))

    served = botocore.session.get_session().create_client(
        "sqs",
        region_name="us-east-1",
        endpoint_url="http://localhost:1",
        aws_access_key_id="k",
        aws_secret_access_key="s",
        config=Config(retries={"max_attempts": 0}),
    )
    served.meta.events.register("before-send.sqs", serve)
    assert served.send_message(QueueUrl="http://localhost:1/0/q", MessageBody="a")["MessageId"] == "id"
    with pytest.raises(served.exceptions.QueueDoesNotExist, match="no such queue") as caught:
        served.purge_queue(QueueUrl="http://localhost:1/0/q")
    assert caught.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert caught.value.response["ResponseMetadata"]["RequestId"] == "r"
    assert seen == [
        model.SendMessageRequest("http://localhost:1/0/q", "a"),
        model.QueueUrlRequest("http://localhost:1/0/q"),
    ]


def test_retry_after_is_only_there_when_known() -> None:
    names = {name for name, _ in json_protocol.error_headers(SqsError(ErrorKind.THROTTLING, "slow"), "r")}
    assert names == {b"content-type", b"x-amzn-requestid", b"x-amzn-errortype", b"x-amzn-query-error"}


def test_an_error_message_with_half_a_surrogate_pair_is_still_told() -> None:
    assert json.loads(json_protocol.encode_error(SqsError(ErrorKind.OVER_LIMIT, "a\ud800"), "r"))["message"] == "a?"
