"""The Query protocol, checked against botocore's own serializer and parser for it.

Today's botocore speaks JSON to SQS; the names of the older protocol are put back into its model here, from AWS's API
reference, so that the two ends of the protocol are not both ours.
"""

import copy
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import botocore.session  # type: ignore[import-untyped]
import pytest
from botocore.model import ServiceModel  # type: ignore[import-untyped]
from botocore.parsers import QueryParser  # type: ignore[import-untyped]
from botocore.serialize import QuerySerializer  # type: ignore[import-untyped]

from penstock.sqs import model
from penstock.sqs.errors import ErrorKind, SqsError, missing_parameter
from penstock.sqs.model import MessageAttributeValue, Shape
from penstock.sqs.wire import query_protocol
from penstock.sqs.wire.form import MAX_PARAMETERS

LIST_MEMBERS = {
    "BinaryList": "BinaryListValue",
    "StringList": "StringListValue",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
}
MAP_MEMBERS = {
    "Attributes": "Attribute",
    "MessageAttributes": "MessageAttribute",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "Tags": "Tag",
    "tags": "Tag",
}


def old_model() -> ServiceModel:
    """AWS's model with the names it had before the JSON protocol came."""
    loader = botocore.session.get_session().get_component("data_loader")
    described = copy.deepcopy(loader.load_service_model("sqs", "service-2"))
    described["metadata"].update(protocol="query", protocols=["query"])
    shapes = described["shapes"]
    for name, shape in shapes.items():
        if shape["type"] == "list":
            shape["member"]["locationName"] = LIST_MEMBERS.get(name, name.removesuffix("List"))
            shape["flattened"] = True
        elif shape["type"] == "map":
            shape["key"]["locationName"] = "Key" if name == "TagMap" else "Name"
            shape["value"]["locationName"] = "Value"
        elif shape["type"] == "structure":
            for member, reference in shape["members"].items():
                if member in MAP_MEMBERS:
                    reference["locationName"] = MAP_MEMBERS[member]
    for action, operation in described["operations"].items():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{action}Result"
    return ServiceModel(described)


aws = old_model()


def sent_by_botocore(action: str, arguments: dict[str, Any]) -> bytes:
    serialized = QuerySerializer().serialize_to_request(arguments, aws.operation_model(action))
    return urlencode(serialized["body"]).encode()


def read_by_botocore(action: str, body: bytes) -> dict[str, Any]:
    answer = {"headers": {}, "status_code": 200, "body": body}
    parsed: dict[str, Any] = QueryParser().parse(answer, aws.operation_model(action).output_shape)
    assert parsed.pop("ResponseMetadata")["RequestId"] == "r-1"
    return parsed


def refusal(parameters: str, path_queue_url: str | None = "http://h/1/q") -> SqsError:
    with pytest.raises(SqsError) as caught:
        query_protocol.parse(b"", parameters.encode(), path_queue_url)
    return caught.value


URL = "http://localhost:9324/000000000000/q"
TYPED = {
    "s": {"DataType": "String", "StringValue": "a & b + c = ü\n"},
    "b": {"DataType": "Binary", "BinaryValue": b"\0\xff\xfe+/"},
    "l": {"DataType": "String", "StringListValues": ["x", "y"], "BinaryListValues": [b"1", b"2"]},
}
TYPED_SHAPES = {
    "s": MessageAttributeValue("String", "a & b + c = ü\n"),
    "b": MessageAttributeValue("Binary", binary_value=b"\0\xff\xfe+/"),
    "l": MessageAttributeValue("String", string_list_values=["x", "y"], binary_list_values=[b"1", b"2"]),
}
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
TRACE_SHAPES = {"AWSTraceHeader": MessageAttributeValue("String", "Root=1")}
NAMES = [f"name-{number}" for number in range(1, 13)]  # twelve: 10 comes after 9, not after 1
REQUESTS: list[tuple[str, dict[str, Any], Shape]] = [
    (
        "AddPermission",
        {"QueueUrl": URL, "Label": "l", "AWSAccountIds": ["1", "2"], "Actions": ["SendMessage", "*"]},
        model.AddPermissionRequest(URL, "l", ["1", "2"], ["SendMessage", "*"]),
    ),
    ("CancelMessageMoveTask", {"TaskHandle": "h"}, model.CancelMessageMoveTaskRequest("h")),
    (
        "ChangeMessageVisibility",
        {"QueueUrl": URL, "ReceiptHandle": "h", "VisibilityTimeout": 0},
        model.ChangeMessageVisibilityRequest(URL, "h", 0),
    ),
    (
        "ChangeMessageVisibilityBatch",
        {
            "QueueUrl": URL,
            "Entries": [{"Id": "1", "ReceiptHandle": "h", "VisibilityTimeout": 9}, {"Id": "2", "ReceiptHandle": "i"}],
        },
        model.ChangeMessageVisibilityBatchRequest(
            URL,
            [
                model.ChangeMessageVisibilityBatchRequestEntry("1", "h", 9),
                model.ChangeMessageVisibilityBatchRequestEntry("2", "i"),
            ],
        ),
    ),
    (
        "CreateQueue",
        {"QueueName": "q.fifo", "Attributes": {"FifoQueue": "true", "DelaySeconds": "5"}, "tags": {"k": "v", "e": ""}},
        model.CreateQueueRequest("q.fifo", {"FifoQueue": "true", "DelaySeconds": "5"}, {"k": "v", "e": ""}),
    ),
    ("DeleteMessage", {"QueueUrl": URL, "ReceiptHandle": "h=+/"}, model.DeleteMessageRequest(URL, "h=+/")),
    (
        "DeleteMessageBatch",
        {"QueueUrl": URL, "Entries": [{"Id": name, "ReceiptHandle": "h"} for name in NAMES]},
        model.DeleteMessageBatchRequest(URL, [model.DeleteMessageBatchRequestEntry(name, "h") for name in NAMES]),
    ),
    ("DeleteQueue", {"QueueUrl": URL}, model.QueueUrlRequest(URL)),
    (
        "GetQueueAttributes",
        {"QueueUrl": URL, "AttributeNames": NAMES},
        model.GetQueueAttributesRequest(URL, NAMES),
    ),
    (
        "GetQueueUrl",
        {"QueueName": "q", "QueueOwnerAWSAccountId": "1"},
        model.GetQueueUrlRequest("q", "1"),
    ),
    (
        "ListDeadLetterSourceQueues",
        {"QueueUrl": URL, "NextToken": "t", "MaxResults": 3},
        model.ListDeadLetterSourceQueuesRequest(URL, "t", 3),
    ),
    ("ListMessageMoveTasks", {"SourceArn": "a", "MaxResults": 2}, model.ListMessageMoveTasksRequest("a", 2)),
    ("ListQueueTags", {"QueueUrl": URL}, model.QueueUrlRequest(URL)),
    ("ListQueues", {}, model.ListQueuesRequest()),
    ("ListQueues", {"QueueNamePrefix": "p", "MaxResults": 1}, model.ListQueuesRequest("p", None, 1)),
    ("PurgeQueue", {"QueueUrl": URL}, model.QueueUrlRequest(URL)),
    (
        "ReceiveMessage",
        {
            "QueueUrl": URL,
            "MessageSystemAttributeNames": ["SenderId"],
            "MessageAttributeNames": ["a.*", "b"],
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": 30,
            "WaitTimeSeconds": 20,
            "ReceiveRequestAttemptId": "r",
        },
        model.ReceiveMessageRequest(URL, [], ["SenderId"], ["a.*", "b"], 10, 30, 20, "r"),
    ),
    ("RemovePermission", {"QueueUrl": URL, "Label": "l"}, model.RemovePermissionRequest(URL, "l")),
    (
        "SendMessage",
        {
            "QueueUrl": URL,
            "MessageBody": "100% <naïve> & 'so' \U0001f600",
            "DelaySeconds": 3,
            "MessageAttributes": TYPED,
            "MessageSystemAttributes": TRACE,
            "MessageDeduplicationId": "d",
            "MessageGroupId": "g",
        },
        model.SendMessageRequest(URL, "100% <naïve> & 'so' \U0001f600", 3, TYPED_SHAPES, TRACE_SHAPES, "d", "g"),
    ),
    (
        "SendMessageBatch",
        {
            "QueueUrl": URL,
            "Entries": [
                {"Id": "1", "MessageBody": "x", "MessageAttributes": TYPED, "MessageSystemAttributes": TRACE},
                {"Id": "2", "MessageBody": "", "DelaySeconds": 1, "MessageGroupId": "g"},
            ],
        },
        model.SendMessageBatchRequest(
            URL,
            [
                model.SendMessageBatchRequestEntry("1", "x", None, TYPED_SHAPES, TRACE_SHAPES),
                model.SendMessageBatchRequestEntry("2", "", 1, message_group_id="g"),
            ],
        ),
    ),
    (
        "SetQueueAttributes",
        {"QueueUrl": URL, "Attributes": {"Policy": '{"a": "b&c"}'}},
        model.SetQueueAttributesRequest(URL, {"Policy": '{"a": "b&c"}'}),
    ),
    (
        "StartMessageMoveTask",
        {"SourceArn": "a", "DestinationArn": "b", "MaxNumberOfMessagesPerSecond": 5},
        model.StartMessageMoveTaskRequest("a", "b", 5),
    ),
    ("TagQueue", {"QueueUrl": URL, "Tags": {"k": "v"}}, model.TagQueueRequest(URL, {"k": "v"})),
    ("UntagQueue", {"QueueUrl": URL, "TagKeys": ["k", "l"]}, model.UntagQueueRequest(URL, ["k", "l"])),
]


@pytest.mark.parametrize(("action", "arguments", "expected"), REQUESTS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_botocore_sends_is_understood(
    method: str, action: str, arguments: dict[str, Any], expected: Shape
) -> None:
    sent = sent_by_botocore(action, arguments)
    parsed = query_protocol.parse(sent, b"") if method == "GET" else query_protocol.parse(b"", sent)
    assert parsed == (action, expected)


def test_every_action_is_among_the_requests() -> None:
    assert {action for action, _, _ in REQUESTS} == set(model.REQUESTS)


def test_parameters_of_query_string_and_body_come_together() -> None:
    parsed = query_protocol.parse(b"Action=SendMessage&Version=2012-11-05", b"QueueUrl=u&MessageBody=a+b%2B")
    assert parsed == ("SendMessage", model.SendMessageRequest("u", "a b+"))


def test_the_queue_may_be_the_path() -> None:
    assert query_protocol.parse(b"Action=PurgeQueue", b"", "p") == ("PurgeQueue", model.QueueUrlRequest("p"))
    given = query_protocol.parse(b"Action=PurgeQueue&QueueUrl=u", b"", "p")
    assert given == ("PurgeQueue", model.QueueUrlRequest("u"))
    assert refusal("Action=PurgeQueue", None).message == missing_parameter("QueueUrl").message


@pytest.mark.parametrize(
    "parameters",
    [
        "Attribute.1.Name=A&Attribute.1.Value=1&Attribute.2.Name=B&Attribute.2.Value=2",
        "Attribute.1.key=A&Attribute.1.value=1&Attribute.2.key=B&Attribute.2.value=2",
        "Attribute.30.Name=B&Attribute.30.Value=2&Attribute.4.Value=1&Attribute.4.Name=A",
        "Attribute.Name=A&Attribute.Value=1&Attribute.1.Name=B&Attribute.1.Value=2",
        "Attribute.999999999.Name=B&Attribute.999999999.Value=2&Attribute.0.Name=A&Attribute.0.Value=1",
    ],
)
def test_maps_are_read_in_all_their_forms(parameters: str) -> None:
    _, request = query_protocol.parse(b"Action=SetQueueAttributes", parameters.encode(), "u")
    assert isinstance(request, model.SetQueueAttributesRequest)
    assert list(request.attributes.items()) == [("A", "1"), ("B", "2")]


def test_lists_are_ordered_by_index_and_may_have_holes() -> None:
    parameters = b"Action=UntagQueue&TagKey.12=c&TagKey.3=b&TagKey=a"
    assert query_protocol.parse(parameters, b"", "u")[1] == model.UntagQueueRequest("u", ["a", "b", "c"])


@pytest.mark.parametrize(("parameters", "keys"), [("TagKeys=", [""]), ("TagKeys=&TagKey.1=a", ["a"])])
def test_botocore_writes_an_empty_list_by_its_name_in_the_service_model(parameters: str, keys: list[str]) -> None:
    _, request = query_protocol.parse(b"Action=UntagQueue", parameters.encode(), "u")
    assert request == model.UntagQueueRequest("u", keys)


def test_an_attribute_of_a_message_may_come_without_an_index() -> None:
    parameters = (
        "Action=SendMessage&MessageBody=b&MessageAttribute.Name=n"
        "&MessageAttribute.Value.DataType=String&MessageAttribute.Value.StringValue=s"
    )
    _, request = query_protocol.parse(parameters.encode(), b"", "u")
    assert request == model.SendMessageRequest("u", "b", None, {"n": MessageAttributeValue("String", "s")})


def test_a_batch_without_entries_is_left_to_the_action() -> None:
    parsed = query_protocol.parse(b"Action=DeleteMessageBatch", b"", "u")
    assert parsed == ("DeleteMessageBatch", model.DeleteMessageBatchRequest("u", []))


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ("Action=SendMessage", "MessageBody"),
        ("Action=SetQueueAttributes", "Attribute.Name"),
        ("Action=UntagQueue", "TagKeys"),
        ("Action=TagQueue", "Tags"),
        ("Action=AddPermission&Label=l&ActionName.1=*", "AWSAccountIds"),
        ("Action=AddPermission&Label=l&AWSAccountId.1=1", "Actions"),
        ("Action=TagQueue&Tag.1.Value=v", "Tag.1.Key"),
        ("Action=TagQueue&Tag.1.Key=v", "Tag.1.Value"),
        ("Action=SendMessageBatch&SendMessageBatchRequestEntry.1.MessageBody=b", "SendMessageBatchRequestEntry.1.Id"),
        ("Action=SendMessage&MessageBody=b&MessageAttribute.1.Name=n", "MessageAttribute.1.Value"),
    ],
)
def test_a_missing_parameter_is_named(parameters: str, name: str) -> None:
    error = refusal(parameters)
    assert error.kind is ErrorKind.MISSING_PARAMETER
    assert error.message == missing_parameter(name).message


@pytest.mark.parametrize(
    "text", ["", "x", "1.5", "1e3", "2147483648", "-2147483649", "9" * 5000, "0x1", " 1", "\u0661"]
)
def test_what_is_not_an_integer_is_refused(text: str) -> None:
    error = refusal(urlencode({"Action": "ReceiveMessage", "MaxNumberOfMessages": text}))
    assert error.kind is ErrorKind.SERIALIZATION
    assert error.message.startswith("MaxNumberOfMessages is not an integer")
    assert len(error.message) < 200


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("-1", -1), ("%2B7", 7), ("007", 7), ("2147483647", 2**31 - 1)])
def test_what_is_an_integer_is_read(text: str, number: int) -> None:
    _, request = query_protocol.parse(f"Action=ReceiveMessage&MaxNumberOfMessages={text}".encode(), b"", "u")
    assert request == model.ReceiveMessageRequest("u", max_number_of_messages=number)


BINARY = (
    "Action=SendMessage&MessageBody=b&MessageAttribute.1.Name=n"
    "&MessageAttribute.1.Value.DataType=Binary&MessageAttribute.1.Value.BinaryValue="
)


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        ("", ErrorKind.UNKNOWN_OPERATION),
        ("Version=2012-11-05", ErrorKind.MISSING_ACTION),
        ("Action=", ErrorKind.MISSING_ACTION),
        ("Action=SendMessages", ErrorKind.INVALID_ACTION),
        ("Action=ListQueues&x=%ff", ErrorKind.SERIALIZATION),
        ("Action=ListQueues&x=100%", ErrorKind.SERIALIZATION),
        ("Action=ListQueues&x=%%41", ErrorKind.SERIALIZATION),
        ("Action=PurgeQueue&QueueUrl=a&QueueUrl=b", ErrorKind.SERIALIZATION),
        ("Action=ListQueues" + "&x=1" * MAX_PARAMETERS, ErrorKind.SERIALIZATION),
        ("Action=UntagQueue&TagKey.x=1", ErrorKind.SERIALIZATION),
        ("Action=UntagQueue&TagKey.-1=1", ErrorKind.SERIALIZATION),
        ("Action=UntagQueue&TagKey.12345678901=1", ErrorKind.SERIALIZATION),
        ("Action=TagQueue&Tag.x.Key=1", ErrorKind.SERIALIZATION),
        (BINARY + "%C3%A9", ErrorKind.SERIALIZATION),
        (BINARY + "AAE", ErrorKind.SERIALIZATION),
        (BINARY + "A+E=", ErrorKind.SERIALIZATION),
        ("Action=TagQueue&Tag.1.Key=k&Tag.1.Value=1&Tag.2.Key=k&Tag.2.Value=2", ErrorKind.INVALID_PARAMETER_VALUE),
    ],
)
def test_what_cannot_be_read_is_refused(parameters: str, kind: ErrorKind) -> None:
    assert refusal(parameters).kind is kind


def test_names_that_no_action_has_are_ignored() -> None:
    deep = ".".join("a" * 100_000)
    parsed = query_protocol.parse(b"Action=ListQueues&X-Amz-Expires=5", f"{deep}=1&Foo.1.Bar=2&..=3&=4".encode())
    assert parsed == ("ListQueues", model.ListQueuesRequest())


MESSAGE = model.ReceivedMessage(
    "id", "h", "m", "a <b> & \"c\" 'd' \r\n\t ü \U0001f600", {"SentTimestamp": "1", "SenderId": "x"}, "ma", TYPED_SHAPES
)
ANSWERS: list[tuple[str, Shape, dict[str, Any]]] = [
    ("CreateQueue", model.QueueUrlResponse(URL), {"QueueUrl": URL}),
    ("ListQueues", model.ListQueuesResponse([URL, "v"], "t"), {"QueueUrls": [URL, "v"], "NextToken": "t"}),
    ("ListQueues", model.ListQueuesResponse(), {}),
    ("GetQueueAttributes", model.GetQueueAttributesResponse({"A": "1"}), {"Attributes": {"A": "1"}}),
    ("ListQueueTags", model.ListQueueTagsResponse({"k": "<v>", "e": ""}), {"Tags": {"k": "<v>", "e": ""}}),
    (
        "SendMessage",
        model.SendMessageResponse("id", "m", sequence_number="7"),
        {"MessageId": "id", "MD5OfMessageBody": "m", "SequenceNumber": "7"},
    ),
    (
        "SendMessageBatch",
        model.SendMessageBatchResponse(
            [model.SendMessageBatchResultEntry("1", "id", "m", "ma")],
            [model.BatchResultErrorEntry("2", "InternalFailure", "<oh>", False)],
        ),
        {
            "Successful": [{"Id": "1", "MessageId": "id", "MD5OfMessageBody": "m", "MD5OfMessageAttributes": "ma"}],
            "Failed": [{"Id": "2", "Code": "InternalFailure", "Message": "<oh>", "SenderFault": False}],
        },
    ),
    (
        "DeleteMessageBatch",
        model.BatchResponse([model.BatchResultEntry("1")], [model.BatchResultErrorEntry("2", "C", "m", True)]),
        {
            "Successful": [{"Id": "1"}],
            "Failed": [{"Id": "2", "Code": "C", "Message": "m", "SenderFault": True}],
        },
    ),
    (
        "ChangeMessageVisibilityBatch",
        model.BatchResponse([model.BatchResultEntry("1"), model.BatchResultEntry("2")]),
        {"Successful": [{"Id": "1"}, {"Id": "2"}]},
    ),
    ("ReceiveMessage", model.ReceiveMessageResponse(), {}),
    (
        "ReceiveMessage",
        model.ReceiveMessageResponse([MESSAGE, model.ReceivedMessage("j", "i", "n", "")]),
        {
            "Messages": [
                {
                    "MessageId": "id",
                    "ReceiptHandle": "h",
                    "MD5OfBody": "m",
                    "Body": MESSAGE.body,
                    "Attributes": {"SentTimestamp": "1", "SenderId": "x"},
                    "MD5OfMessageAttributes": "ma",
                    "MessageAttributes": TYPED,
                },
                {"MessageId": "j", "ReceiptHandle": "i", "MD5OfBody": "n", "Body": ""},
            ]
        },
    ),
    ("ListDeadLetterSourceQueues", model.ListDeadLetterSourceQueuesResponse([URL]), {"queueUrls": [URL]}),
    ("StartMessageMoveTask", model.TaskHandleResponse("h"), {"TaskHandle": "h"}),
    ("CancelMessageMoveTask", model.CancelMessageMoveTaskResponse(4), {"ApproximateNumberOfMessagesMoved": 4}),
    (
        "ListMessageMoveTasks",
        model.ListMessageMoveTasksResponse([model.MessageMoveTask("RUNNING", "a", started_timestamp=5)]),
        {"Results": [{"Status": "RUNNING", "SourceArn": "a", "StartedTimestamp": 5}]},
    ),
]


@pytest.mark.parametrize(("action", "response", "expected"), ANSWERS)
def test_botocore_reads_our_answers(action: str, response: Shape, expected: dict[str, Any]) -> None:
    parsed = read_by_botocore(action, query_protocol.encode(action, response, "r-1"))
    assert {name: value for name, value in parsed.items() if value not in ([], {})} == expected


def test_an_answer_looks_as_that_of_aws() -> None:
    body = query_protocol.encode("SendMessage", model.SendMessageResponse("id", "md5"), "r-1")
    assert body == (
        b'<?xml version="1.0"?><SendMessageResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        b"<SendMessageResult><MessageId>id</MessageId><MD5OfMessageBody>md5</MD5OfMessageBody></SendMessageResult>"
        b"<ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata></SendMessageResponse>"
    )


def test_an_action_that_answers_nothing_has_no_result() -> None:
    assert query_protocol.encode("DeleteMessage", model.EmptyResponse(), "r-1") == (
        b'<?xml version="1.0"?><DeleteMessageResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        b"<ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata></DeleteMessageResponse>"
    )


def test_an_error_looks_as_that_of_aws() -> None:
    error = SqsError(ErrorKind.OVER_LIMIT, "no <queue>", retry_after_s=3)
    assert query_protocol.encode_error(error, "r-1") == (
        b'<?xml version="1.0"?><ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error>'
        b"<Type>Sender</Type><Code>OverLimit</Code><Message>no &lt;queue&gt;</Message>"
        b"<Detail/></Error><RequestId>r-1</RequestId></ErrorResponse>"
    )
    assert (b"retry-after", b"3") in query_protocol.error_headers(error, "r-1")


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if kind is not ErrorKind.UNKNOWN_OPERATION])
def test_botocore_reads_our_errors(kind: ErrorKind) -> None:
    body = query_protocol.encode_error(SqsError(kind, "why"), "r-1")
    answer = {"headers": {}, "status_code": kind.status, "body": body}
    parsed = QueryParser().parse(answer, aws.operation_model("SendMessage").output_shape)
    fault = "Sender" if kind.sender_fault else "Receiver"
    assert {name: parsed["Error"][name] for name in ("Code", "Message", "Type")} == {
        "Code": kind.query_code,
        "Message": query_protocol.message_of(SqsError(kind, "why")),
        "Type": fault,
    }
    assert parsed["ResponseMetadata"]["RequestId"] == "r-1"


def test_characters_that_xml_cannot_carry_are_replaced() -> None:
    body = query_protocol.encode("GetQueueUrl", model.QueueUrlResponse("a\0\x1b\x7f\x85\ufffe\ud800z"), "r-1")
    text = ElementTree.fromstring(body).findtext(".//{*}QueueUrl")
    assert text == "a\ufffd\ufffd\x7f\x85\ufffd\ufffdz"


def test_answers_are_xml() -> None:
    assert query_protocol.headers("r-1") == [(b"content-type", b"text/xml"), (b"x-amzn-requestid", b"r-1")]
