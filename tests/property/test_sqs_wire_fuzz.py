"""Both parsers on hostile input, and XML that carries any text."""

import json
import re
import tracemalloc
from typing import Any
from urllib.parse import quote, unquote_plus, urlencode
from xml.etree import ElementTree

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from penstock.sqs import model
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.model import REQUESTS, MessageAttributeValue, Shape
from penstock.sqs.wire import json_protocol, query_protocol
from penstock.sqs.wire.query_names import FieldKind, fields_of

NAMESPACE = f"{{{query_protocol.NAMESPACE}}}"
actions = st.sampled_from(sorted(REQUESTS))


def decode(action: str, body: bytes) -> None:
    """A request of the action or a refusal that blames the caller; anything else fails the test."""
    try:
        request = json_protocol.decode(action, body)
    except SqsError as error:
        check_refusal(error)
    else:
        assert type(request) is REQUESTS[action]


def parse(query_string: bytes, body: bytes) -> None:
    """As `decode`, for the Query protocol."""
    try:
        action, request = query_protocol.parse(query_string, body, "http://h/1/q")
    except SqsError as error:
        check_refusal(error)
    else:
        assert type(request) is REQUESTS[action]


def check_refusal(error: SqsError) -> None:
    assert 400 <= error.kind.status < 500
    assert len(error.message) < 500
    assert json.loads(json_protocol.encode_error(error, "r"))["message"] == error.message
    assert ElementTree.fromstring(query_protocol.encode_error(error, "r")).findtext(".//{*}Message") is not None


values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "Id", "DataType"]), inner, max_size=3)
    ),
    max_leaves=6,
)
field_names = sorted({name for shape in REQUESTS.values() for name in shape.__struct_encode_fields__})
objects = st.dictionaries(st.sampled_from(field_names), values, max_size=6)

SEND = {
    "QueueUrl": "http://h/1/q",
    "Entries": [
        {"Id": "1", "MessageBody": "b", "MessageAttributes": {"n": {"DataType": "Binary", "BinaryValue": "AAE="}}}
    ],
}
FORM = {
    "Action": "SendMessageBatch",
    "SendMessageBatchRequestEntry.1.Id": "1",
    "SendMessageBatchRequestEntry.1.MessageBody": "b",
    "SendMessageBatchRequestEntry.1.DelaySeconds": "5",
    "SendMessageBatchRequestEntry.1.MessageAttribute.1.Name": "n",
    "SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType": "Binary",
    "SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.BinaryValue": "AAE=",
}


@st.composite
def mutations(draw: st.DrawFn, original: bytes) -> bytes:
    """Near-valid bytes: pieces cut out, doubled or overwritten."""
    changed = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(changed)))
        end = min(len(changed), start + draw(st.integers(0, 12)))
        changed[start:end] = draw(st.one_of(st.binary(max_size=6), st.just(bytes(changed[start:end]) * 2)))
    return bytes(changed)


@given(actions, st.binary())
def test_any_bytes_are_read_as_json_or_refused(action: str, body: bytes) -> None:
    decode(action, body)


@given(actions, objects)
def test_any_object_is_read_as_json_or_refused(action: str, body: dict[str, Any]) -> None:
    decode(action, json.dumps(body).encode())


@given(mutations(json.dumps(SEND).encode()))
def test_nearly_valid_json_is_read_or_refused(body: bytes) -> None:
    decode("SendMessageBatch", body)


@given(st.binary(), st.binary())
def test_any_bytes_are_read_as_a_form_or_refused(query_string: bytes, body: bytes) -> None:
    # AWS answers a request without anything in it without a message, too.
    assume(query_string or body)
    parse(query_string, body)


@given(st.binary(), st.sampled_from(["", "~", " +=&%\r\n\t_.?"]))
@example(b"=\r\n =\t\n== \n", " =\r\n\t")
@example(bytes(range(256)), "")
def test_every_way_to_escape_a_text_is_read(data: bytes, safe: str) -> None:
    text = data.decode("utf-8", "replace")
    escaped = quote(text, safe=safe.replace("%", "").replace("&", "").replace("+", ""))
    _, request = query_protocol.parse(b"Action=SendMessage", f"MessageBody={escaped}".encode(), "u")
    assert request == model.SendMessageRequest("u", text)


@given(st.text("%41Gz=\r\n +", max_size=12))
def test_escapes_are_undone_as_urllib_does_or_refused(escaped: str) -> None:
    body = f"MessageBody={escaped}".encode()
    if re.search("%(?![0-9a-f]{2})", escaped):
        with pytest.raises(SqsError):
            query_protocol.parse(b"Action=SendMessage", body, "u")
    else:
        parsed = query_protocol.parse(b"Action=SendMessage", body, "u")
        assert parsed == ("SendMessage", model.SendMessageRequest("u", unquote_plus(escaped)))


query_names = sorted(
    {field.name for action, shape in REQUESTS.items() for field in fields_of(shape, action)} | {"Name", "Value", "Key"}
)
steps = st.one_of(st.sampled_from(query_names), st.integers(0, 12).map(str), st.sampled_from(["", "x", "999999999"]))
dotted = st.lists(steps, min_size=1, max_size=7).map(".".join)


@given(actions, st.dictionaries(dotted, st.one_of(st.text(max_size=6), st.integers().map(str)), max_size=8))
@example("TagQueue", {"Tag.Key": "k", "Tag.Value": "v", "Tag.1.key": "l", "Tag.1.value": ""})
def test_any_names_are_read_as_a_form_or_refused(action: str, parameters: dict[str, str]) -> None:
    parse(f"Action={action}".encode(), urlencode(parameters).encode())


@given(mutations(urlencode(FORM).encode()))
def test_a_nearly_valid_form_is_read_or_refused(body: bytes) -> None:
    parse(b"", body)


HOSTILE = [
    b"Action=SetQueueAttributes&Attribute.999999999.Name=a&Attribute.999999999.Value=b",
    b"Action=TagQueue&" + b"&".join(b"Tag.%d.Key=%d" % (number, number) for number in range(50_000)),
    b"Action=SendMessage&" + b"." * 1_000_000 + b"=1",
    b"Action=SendMessage&" + b"a." * 500_000 + b"=1",
    b"Action=SendMessage&" + b"&" * 1_000_000,
    b"Action=SendMessage&MessageBody=" + b"%41" * 300_000,
    b"Action=ReceiveMessage&MaxNumberOfMessages=" + b"9" * 1_000_000,
    b"Action=UntagQueue&TagKey." + b"9" * 1_000_000 + b"=x",
    b"Action=" + b"x" * 1_000_000,
]


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_form_costs_no_more_than_its_size(body: bytes) -> None:
    assert peak_bytes(body) < 2_000_000 + 20 * len(body)


def peak_bytes(body: bytes) -> int:
    tracemalloc.start()
    try:
        parse(b"", body)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


carried = st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
texts = st.text(st.one_of(carried, st.sampled_from("\t\n\r&<>\"']\x7f\x85")), max_size=12)


def shapes(shape: type[Shape]) -> st.SearchStrategy[Shape]:
    """Any value of a shape, with texts that XML can carry."""
    leaves: dict[FieldKind, st.SearchStrategy[Any]] = {
        FieldKind.TEXT: texts,
        FieldKind.INTEGER: st.integers(-(2**63), 2**63),
        FieldKind.FLAG: st.booleans(),
        FieldKind.BINARY: st.binary(max_size=8),
        FieldKind.TEXTS: st.lists(texts, max_size=3),
        FieldKind.BINARIES: st.lists(st.binary(max_size=8), max_size=3),
        FieldKind.TEXT_MAP: st.dictionaries(texts, texts, max_size=3),
    }
    arguments: dict[str, st.SearchStrategy[Any]] = {}
    for field in fields_of(shape):
        if field.kind is FieldKind.SHAPES:
            arguments[field.attribute] = st.lists(shapes(field.item), max_size=2)
        elif field.kind is FieldKind.SHAPE_MAP:
            arguments[field.attribute] = st.dictionaries(texts, shapes(field.item), max_size=2)
        else:
            arguments[field.attribute] = leaves[field.kind]
    return st.builds(shape, **arguments)


RESPONSES: dict[str, type[Shape]] = {
    "CancelMessageMoveTask": model.CancelMessageMoveTaskResponse,
    "CreateQueue": model.QueueUrlResponse,
    "DeleteMessage": model.EmptyResponse,
    "DeleteMessageBatch": model.BatchResponse,
    "GetQueueAttributes": model.GetQueueAttributesResponse,
    "ListDeadLetterSourceQueues": model.ListDeadLetterSourceQueuesResponse,
    "ListMessageMoveTasks": model.ListMessageMoveTasksResponse,
    "ListQueueTags": model.ListQueueTagsResponse,
    "ListQueues": model.ListQueuesResponse,
    "ReceiveMessage": model.ReceiveMessageResponse,
    "SendMessage": model.SendMessageResponse,
    "SendMessageBatch": model.SendMessageBatchResponse,
    "StartMessageMoveTask": model.TaskHandleResponse,
}
answers = st.sampled_from(sorted(RESPONSES)).flatmap(
    lambda action: st.tuples(st.just(action), shapes(RESPONSES[action]))
)


def texts_of(value: object) -> list[str]:
    """All texts in a response, in the order of its fields."""
    match value:
        case str():
            return [value]
        case Shape():
            return [text for name in value.__struct_fields__ for text in texts_of(getattr(value, name))]
        case list():
            return [text for item in value for text in texts_of(item)]
        case dict():
            return [text for pair in value.items() for item in pair for text in texts_of(item)]
    return []


# What holds a number, a flag or base64 has none of the response's own text.
NOT_TEXT = {
    "ApproximateNumberOfMessagesMoved",
    "ApproximateNumberOfMessagesToMove",
    "BinaryListValue",
    "BinaryValue",
    "MaxNumberOfMessagesPerSecond",
    "SenderFault",
    "StartedTimestamp",
}


@given(answers, texts)
def test_any_text_survives_the_xml(answer: tuple[str, Shape], request_id: str) -> None:
    action, response = answer
    root = ElementTree.fromstring(query_protocol.encode(action, response, request_id))
    assert root.tag == f"{NAMESPACE}{action}Response"
    assert root.findtext(f"{NAMESPACE}ResponseMetadata/{NAMESPACE}RequestId") == request_id
    result = root.find(f"{NAMESPACE}{action}Result")
    leaves = [] if result is None else [leaf for leaf in result.iter() if not len(leaf) and leaf is not result]
    read = [leaf.text or "" for leaf in leaves if leaf.tag.removeprefix(NAMESPACE) not in NOT_TEXT]
    assert read == texts_of(response)


@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_at_all_leaves_the_answer_readable(text: str, name: str) -> None:
    attributes = {name: MessageAttributeValue("String", text)}
    message = model.ReceivedMessage(text, text, text, text, {name: text}, text, attributes)
    body = query_protocol.encode("ReceiveMessage", model.ReceiveMessageResponse([message]), text)
    assert ElementTree.fromstring(body).find(f".//{NAMESPACE}Body") is not None
    ElementTree.fromstring(query_protocol.encode_error(SqsError(ErrorKind.OVER_LIMIT, text), name))
    json.loads(json_protocol.encode_error(SqsError(ErrorKind.OVER_LIMIT, text), name))


@given(st.text(), st.binary())
def test_both_protocols_read_the_same_message(text: str, binary: bytes) -> None:
    attributes = {"n": MessageAttributeValue("Binary", binary_value=binary)}
    request = model.SendMessageRequest("u", text, 3, attributes)
    sent = json_protocol.encode("SendMessage", request, "r")
    assert json_protocol.decode("SendMessage", sent) == request
    encoded = json.loads(sent)["MessageAttributes"]["n"]["BinaryValue"]
    form = (
        f"Action=SendMessage&QueueUrl=u&DelaySeconds=3&MessageBody={quote(text, safe='')}&MessageAttribute.1.Name=n"
        f"&MessageAttribute.1.Value.DataType=Binary&MessageAttribute.1.Value.BinaryValue={quote(encoded, safe='')}"
    )
    assert query_protocol.parse(b"", form.encode()) == ("SendMessage", request)
