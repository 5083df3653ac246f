"""Every parameter of every action: absent, at and beyond its bounds, of a wrong type, given twice, in both protocols.

Which parameters there are, of which type, whether they are required, and which errors an action has, is read from the
service model that botocore ships. The bounds are those of AWS's API reference and developer guide, which the model
does not contain. A parameter that AWS adds makes `test_every_parameter_has_bounds` fail.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any
from uuid import uuid4

import pytest

from tests.services.sqs_requests import (
    ACTIONS,
    JSON,
    MODEL,
    QUERY,
    Outcome,
    answer_fields,
    ask,
    ask_json,
    ask_query,
    flat,
    modelled_errors,
    parameters_of,
    query_name,
)
from tests.services.sqs_server import SqsServer

PREFIX = "AWS.SimpleQueueService."
NO_QUEUE = PREFIX + "NonExistentQueue"
INVALID, MISSING, MALFORMED = "InvalidParameterValue", "MissingParameter", "MalformedInput"
ATTRIBUTE_NAME, ATTRIBUTE_VALUE = "InvalidAttributeName", "InvalidAttributeValue"
NOT_FOUND, BAD_HANDLE = "ResourceNotFoundException", "ReceiptHandleIsInvalid"
NO_LISTS = PREFIX + "UnsupportedOperation"
FINE = ""

# Errors that all of AWS's services have; the model lists only those of SQS itself.
COMMON = {INVALID, MISSING, MALFORMED}
FULL = 1_048_576

PATHS = [
    *((action, (name,)) for action in ACTIONS for name in parameters_of(action)),
    *(
        (action, ("Entries", name))
        for action in ACTIONS
        if "Entries" in parameters_of(action)
        for name in parameters_of(action)["Entries"].member.members
    ),
]
IDS = [f"{action}.{'.'.join(path)}" for action, path in PATHS]

both = pytest.mark.parametrize("protocol", [JSON, QUERY])
every_parameter = pytest.mark.parametrize(("action", "path"), PATHS, ids=IDS)


class World:
    """Queues on a real server, and a valid request for every action."""

    def __init__(self, server: SqsServer) -> None:
        self.server = server
        self.client = server.anyone
        self.urls: list[str] = []
        self.dead = self.queue()
        self.dead_arn = self.arn(self.dead)
        redrive = json.dumps({"deadLetterTargetArn": self.dead_arn, "maxReceiveCount": 9})
        self.plain = self.queue(RedrivePolicy=redrive)
        self.other = self.queue()
        self.ordered = self.queue(".fifo", FifoQueue="true")

    def queue(self, suffix: str = "", **attributes: str) -> str:
        url: str = self.client.create_queue(QueueName=f"m-{uuid4().hex}{suffix}", Attributes=attributes)["QueueUrl"]
        self.urls.append(url)
        return url

    def arn(self, url: str) -> str:
        got = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return str(got["Attributes"]["QueueArn"])

    def handle(self) -> str:
        self.client.send_message(QueueUrl=self.plain, MessageBody="x")
        return str(self.client.receive_message(QueueUrl=self.plain)["Messages"][0]["ReceiptHandle"])

    def task(self) -> str:
        """The handle of a move that runs: one message a second, of several."""
        url = self.queue()
        arn = self.arn(url)
        self.queue(RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1}))
        entries = [{"Id": str(n), "MessageBody": "x"} for n in range(10)]
        for _ in range(3):
            self.client.send_message_batch(QueueUrl=url, Entries=entries)
        started = self.client.start_message_move_task(
            SourceArn=arn, DestinationArn=self.arn(self.plain), MaxNumberOfMessagesPerSecond=1
        )
        return str(started["TaskHandle"])

    def dead_letter_queue(self) -> str:
        """The ARN of a dead-letter queue of its own."""
        arn = self.arn(self.queue())
        self.queue(RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1}))
        return arn


VALID: dict[str, Callable[[World], dict[str, Any]]] = {
    "AddPermission": lambda w: {
        "QueueUrl": w.queue(),
        "Label": "label",
        "AWSAccountIds": ["123456789012"],
        "Actions": ["SendMessage"],
    },
    "CancelMessageMoveTask": lambda w: {"TaskHandle": w.task()},
    "ChangeMessageVisibility": lambda w: {"QueueUrl": w.plain, "ReceiptHandle": w.handle(), "VisibilityTimeout": 9},
    "ChangeMessageVisibilityBatch": lambda w: {
        "QueueUrl": w.plain,
        "Entries": [{"Id": "a", "ReceiptHandle": w.handle(), "VisibilityTimeout": 9}],
    },
    "CreateQueue": lambda w: {
        "QueueName": f"m-{uuid4().hex}",
        "Attributes": {"DelaySeconds": "1"},
        "tags": {"team": "a"},
    },
    "DeleteMessage": lambda w: {"QueueUrl": w.plain, "ReceiptHandle": w.handle()},
    "DeleteMessageBatch": lambda w: {"QueueUrl": w.plain, "Entries": [{"Id": "a", "ReceiptHandle": w.handle()}]},
    "DeleteQueue": lambda w: {"QueueUrl": w.queue()},
    "GetQueueAttributes": lambda w: {"QueueUrl": w.plain, "AttributeNames": ["All"]},
    "GetQueueUrl": lambda w: {
        "QueueName": w.plain.rpartition("/")[2],
        "QueueOwnerAWSAccountId": w.plain.split("/")[-2],
    },
    "ListDeadLetterSourceQueues": lambda w: {"QueueUrl": w.dead, "MaxResults": 5},
    "ListMessageMoveTasks": lambda w: {"SourceArn": w.dead_arn, "MaxResults": 5},
    "ListQueueTags": lambda w: {"QueueUrl": w.plain},
    "ListQueues": lambda w: {"QueueNamePrefix": "m-", "MaxResults": 5},
    "PurgeQueue": lambda w: {"QueueUrl": w.queue()},
    "ReceiveMessage": lambda w: {
        "QueueUrl": w.plain,
        "MessageSystemAttributeNames": ["SenderId"],
        "MessageAttributeNames": ["a"],
        "MaxNumberOfMessages": 1,
        "VisibilityTimeout": 0,
        "WaitTimeSeconds": 0,
    },
    "RemovePermission": lambda w: {"QueueUrl": w.plain, "Label": a_label(w)},
    "SendMessage": lambda w: {"QueueUrl": w.plain, "DelaySeconds": 900, **a_message()},
    "SendMessageBatch": lambda w: {"QueueUrl": w.plain, "Entries": [{"Id": "a", "DelaySeconds": 900, **a_message()}]},
    "SetQueueAttributes": lambda w: {"QueueUrl": w.other, "Attributes": {"DelaySeconds": "1"}},
    "StartMessageMoveTask": lambda w: {
        "SourceArn": w.dead_letter_queue(),
        "DestinationArn": w.arn(w.plain),
        "MaxNumberOfMessagesPerSecond": 5,
    },
    "TagQueue": lambda w: {"QueueUrl": w.queue(), "Tags": {"team": "a"}},
    "UntagQueue": lambda w: {"QueueUrl": w.plain, "TagKeys": ["team"]},
}


def a_message() -> dict[str, Any]:
    """The fields of a message for a standard queue."""
    attribute = {"DataType": "String", "StringValue": "v"}
    trace = {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}
    return {
        "MessageBody": "x",
        "MessageAttributes": {"a": attribute},
        "MessageSystemAttributes": {"AWSTraceHeader": trace},
        "MessageGroupId": "g",
    }


def a_label(world: World) -> str:
    """The label of a permission that exists."""
    label = f"l-{uuid4().hex}"
    world.client.add_permission(QueueUrl=world.plain, Label=label, AWSAccountIds=["123456789012"], Actions=["*"])
    return label


# Values of a parameter, and the code of the answer


def whole(least: int, most: int) -> list[tuple[Any, str]]:
    """A number within bounds, of 32 bits."""
    beyond = [(least - 1, INVALID), (most + 1, INVALID), (-(2**31), INVALID), (2**31 - 1, INVALID)]
    return [(least, FINE), (most, FINE), *beyond, (2**31, MALFORMED), (-(2**31) - 1, MALFORMED)]


def attribute(text: str = "v", kind: str = "String") -> dict[str, str]:
    """A message attribute."""
    return {"DataType": kind, "StringValue": text}


URL = [
    ("http://x/", NO_QUEUE),
    ("http://x/000000000000/not-there", NO_QUEUE),
    ("http://x/000000000000/a b", NO_QUEUE),
    ("", NO_QUEUE),
]
PRINTABLE = "".join(map(chr, range(33, 127)))
IDENTIFIER = [
    ("a", FINE),
    ("a" * 128, FINE),
    (PRINTABLE, FINE),
    ("a" * 129, INVALID),
    ("a b", INVALID),
    ("ä", INVALID),
    ("a\n", INVALID),
]
ENTRY_ID = [
    ("a", FINE),
    ("A-z_9" * 16, FINE),
    ("a" * 81, PREFIX + "InvalidBatchEntryId"),
    ("a b", PREFIX + "InvalidBatchEntryId"),
    ("ä", PREFIX + "InvalidBatchEntryId"),
    ("a.b", PREFIX + "InvalidBatchEntryId"),
    ("", PREFIX + "InvalidBatchEntryId"),
]
HANDLE = [("garbage", BAD_HANDLE), ("x" * 2048, BAD_HANDLE), ("ä", BAD_HANDLE)]
BODY = [
    ("x" * FULL, FINE),
    ("\t\n\r \ud7ff\ue000\ufffd\U00010000\U0010ffff", FINE),
    ("x" * (FULL + 1), INVALID),
    ("\x00", "InvalidMessageContents"),
    ("\x0b", "InvalidMessageContents"),
    ("\uffff", "InvalidMessageContents"),
    ("", MISSING),
]
ATTRIBUTES: list[tuple[Any, str]] = [
    ({}, FINE),
    ({f"a{n}": attribute() for n in range(10)}, FINE),
    ({f"a{n}": attribute() for n in range(11)}, INVALID),
    ({"n" * 256: attribute()}, FINE),
    ({"n" * 257: attribute()}, INVALID),
    ({"": attribute()}, INVALID),
    ({"AWS.x": attribute()}, INVALID),
    ({"amazon.x": attribute()}, INVALID),
    ({".x": attribute()}, INVALID),
    ({"x.": attribute()}, INVALID),
    ({"x..y": attribute()}, INVALID),
    ({"x y": attribute()}, INVALID),
    ({"a": attribute(kind="String." + "l" * 249)}, FINE),
    ({"a": attribute(kind="String." + "l" * 250)}, INVALID),
    ({"a": attribute(kind="Text")}, INVALID),
    ({"a": attribute(kind="")}, INVALID),
    ({"a": attribute("")}, INVALID),
    ({"a": attribute("12.5e3", "Number.float")}, FINE),
    ({"a": attribute("twelve", "Number")}, INVALID),
    ({"a": attribute("\x01")}, INVALID),
    ({"a": {"DataType": "Binary", "BinaryValue": "AAEC"}}, FINE),
    ({"a": {"DataType": "Binary"}}, INVALID),
    ({"a": {"DataType": "String", "BinaryValue": "AAEC"}}, INVALID),
    ({"a": {"DataType": "Binary", "StringValue": "x"}}, INVALID),
]
SYSTEM: list[tuple[Any, str]] = [
    ({}, FINE),
    ({"AWSTraceHeader": attribute()}, FINE),
    ({"AWSTraceHeader": attribute("1", "Number")}, INVALID),
    ({"SenderId": attribute()}, INVALID),
]
DEDUPLICATION = [("a", INVALID), ("", INVALID)]  # a standard queue has none
TAGS: list[tuple[Any, str]] = [
    ({f"k{n}": "v" for n in range(50)}, FINE),
    ({f"k{n}": "v" for n in range(51)}, INVALID),
    ({"k" * 128: "v" * 256}, FINE),
    ({"k": ""}, FINE),
    ({"äöü +-=._:/@": "ß"}, FINE),
    ({"k" * 129: "v"}, INVALID),
    ({"k": "v" * 257}, INVALID),
    ({"": "v"}, INVALID),
    ({"aws:k": "v"}, INVALID),
]
PLAIN_BOUNDS = {
    "VisibilityTimeout": (0, 43_200),
    "MessageRetentionPeriod": (60, 1_209_600),
    "DelaySeconds": (0, 900),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "MaximumMessageSize": (1024, FULL),
}
SETTINGS: list[tuple[Any, str]] = [
    *(({name: str(edge)}, FINE) for name, edges in PLAIN_BOUNDS.items() for edge in edges),
    *(({name: str(least - 1)}, ATTRIBUTE_VALUE) for name, (least, _) in PLAIN_BOUNDS.items()),
    *(({name: str(most + 1)}, ATTRIBUTE_VALUE) for name, (_, most) in PLAIN_BOUNDS.items()),
    *(({name: text}, ATTRIBUTE_VALUE) for name in PLAIN_BOUNDS for text in ("", "x", "1.5", "1 ", "0x1", "\u0661")),
    ({"KmsMasterKeyId": "alias/aws/sqs", "KmsDataKeyReusePeriodSeconds": "60"}, FINE),
    ({"KmsDataKeyReusePeriodSeconds": "86400"}, FINE),
    ({"KmsDataKeyReusePeriodSeconds": "59"}, ATTRIBUTE_VALUE),
    ({"KmsDataKeyReusePeriodSeconds": "86401"}, ATTRIBUTE_VALUE),
    ({"SqsManagedSseEnabled": "false"}, FINE),
    ({"SqsManagedSseEnabled": "perhaps"}, ATTRIBUTE_VALUE),
    ({"Policy": '{"Statement":{"Effect":"Deny","Principal":"*","Action":"sqs:*","Resource":"*"}}'}, FINE),
    ({"Policy": "{}"}, ATTRIBUTE_VALUE),
    ({"Policy": "not JSON"}, ATTRIBUTE_VALUE),
    ({"RedriveAllowPolicy": '{"redrivePermission":"denyAll"}'}, FINE),
    ({"RedriveAllowPolicy": '{"redrivePermission":"some"}'}, ATTRIBUTE_VALUE),
    ({"RedriveAllowPolicy": '{"redrivePermission":"byQueue"}'}, INVALID),
    ({"RedrivePolicy": "not JSON"}, ATTRIBUTE_VALUE),
    ({"RedrivePolicy": "{}"}, INVALID),
    ({"RedrivePolicy": '{"deadLetterTargetArn":"dummy","maxReceiveCount":5}'}, INVALID),
    ({"FifoQueue": "false"}, ATTRIBUTE_NAME),
    ({"ContentBasedDeduplication": "true"}, ATTRIBUTE_NAME),
    ({"DeduplicationScope": "queue"}, ATTRIBUTE_NAME),
    ({"FifoThroughputLimit": "perQueue"}, ATTRIBUTE_NAME),
    ({"QueueArn": "x"}, ATTRIBUTE_NAME),
    ({"ApproximateNumberOfMessages": "1"}, ATTRIBUTE_NAME),
    ({"All": "1"}, ATTRIBUTE_NAME),
    ({"visibilitytimeout": "1"}, ATTRIBUTE_NAME),
]
ARN = [("arn:aws:sqs:us-east-1:000000000000:not-there", NOT_FOUND), ("", INVALID), ("dummy", INVALID)]
SHOWN: list[tuple[Any, str]] = [
    ([], FINE),
    *(([name], FINE) for name in MODEL.shape_for("QueueAttributeName").enum),
    (["All", "All"], FINE),
    (["Nothing"], ATTRIBUTE_NAME),
    (["All", "Nothing"], ATTRIBUTE_NAME),
    ([""], ATTRIBUTE_NAME),
]
RECEIVED: list[tuple[Any, str]] = [
    ([], FINE),
    *(([name], FINE) for name in MODEL.shape_for("MessageSystemAttributeName").enum),
    (["SenderId", "SenderId"], FINE),
    (["Nothing"], INVALID),
]
BATCHES = ("ChangeMessageVisibilityBatch", "DeleteMessageBatch", "SendMessageBatch")
TOKEN = [("garbage!", INVALID)]

BOUNDS: dict[str, list[tuple[Any, str]]] = {
    **{f"{action}.QueueUrl": URL for action in ACTIONS if "QueueUrl" in parameters_of(action)},
    **{f"{action}.Entries.Id": ENTRY_ID for action in BATCHES},
    **{f"{action}.ReceiptHandle": HANDLE for action in ("DeleteMessage", "ChangeMessageVisibility")},
    **{f"{action}.Entries.ReceiptHandle": HANDLE for action in ("DeleteMessageBatch", "ChangeMessageVisibilityBatch")},
    **{
        f"{place}.{name}": values
        for place in ("SendMessage", "SendMessageBatch.Entries")
        for name, values in {
            "DelaySeconds": whole(0, 900),
            "MessageAttributes": ATTRIBUTES,
            "MessageSystemAttributes": SYSTEM,
            "MessageDeduplicationId": DEDUPLICATION,
            "MessageGroupId": IDENTIFIER,
        }.items()
    },
    "AddPermission.AWSAccountIds": [
        ([], INVALID),
        (["1"], INVALID),
        (["x" * 12], INVALID),
        (["1" * 12, "2" * 12], FINE),
    ],
    "AddPermission.Actions": [
        ([], MISSING),
        (["*"], FINE),
        (["SendMessage"] * 7, FINE),
        (["SendMessage"] * 8, "OverLimit"),
        (["CreateQueue"], INVALID),
        (["Dance"], INVALID),
    ],
    "AddPermission.Label": [("l" * 80, FINE), ("l" * 81, INVALID), ("a b", INVALID), ("", MISSING)],
    "CancelMessageMoveTask.TaskHandle": [("garbage", INVALID), ("", INVALID)],
    "ChangeMessageVisibility.VisibilityTimeout": whole(0, 43_200)[:1] + whole(0, 43_200)[2:],
    "ChangeMessageVisibilityBatch.Entries": [([], PREFIX + "EmptyBatchRequest")],
    "ChangeMessageVisibilityBatch.Entries.VisibilityTimeout": whole(0, 43_200)[:1] + whole(0, 43_200)[2:],
    "CreateQueue.Attributes": [({}, FINE), *SETTINGS],
    "CreateQueue.QueueName": [
        ("q", FINE),
        ("A-z_9" * 16, FINE),
        ("q" * 81, INVALID),
        ("", INVALID),
        ("a b", INVALID),
        ("a/b", INVALID),
        ("ä", INVALID),
        ("q.fifo", INVALID),
        ("q.other", INVALID),
    ],
    "CreateQueue.tags": [({}, FINE), *TAGS],
    "DeleteMessageBatch.Entries": [([], PREFIX + "EmptyBatchRequest")],
    "GetQueueAttributes.AttributeNames": SHOWN,
    "GetQueueUrl.QueueName": [("not-there", NO_QUEUE), ("a b", NO_QUEUE), ("q" * 81, NO_QUEUE)],
    "GetQueueUrl.QueueOwnerAWSAccountId": [("999999999999", NO_QUEUE), ("x", NO_QUEUE)],
    "ListDeadLetterSourceQueues.MaxResults": whole(1, 1000),
    "ListDeadLetterSourceQueues.NextToken": TOKEN,
    "ListMessageMoveTasks.MaxResults": whole(1, 10),
    "ListMessageMoveTasks.SourceArn": ARN,
    "ListQueues.MaxResults": whole(1, 1000),
    "ListQueues.NextToken": TOKEN,
    "ListQueues.QueueNamePrefix": [("", FINE), ("nothing-begins-with-this", FINE), ("a b", FINE)],
    "ReceiveMessage.AttributeNames": RECEIVED,
    "ReceiveMessage.MaxNumberOfMessages": whole(1, 10),
    "ReceiveMessage.MessageAttributeNames": [
        ([], FINE),
        (["All"], FINE),
        ([".*"], FINE),
        (["a.*"], FINE),
        (["AWS."], FINE),
        (["."], FINE),
        (["a", "a"], FINE),
    ],
    "ReceiveMessage.MessageSystemAttributeNames": RECEIVED,
    "ReceiveMessage.ReceiveRequestAttemptId": [("a", INVALID)],  # for FIFO queues only
    "ReceiveMessage.VisibilityTimeout": whole(0, 43_200),
    "ReceiveMessage.WaitTimeSeconds": [*whole(0, 20)[:1], *whole(0, 20)[2:]],  # the longest one takes its time
    "RemovePermission.Label": [("not-there", INVALID), ("", MISSING)],
    "SendMessage.MessageBody": BODY,
    "SendMessageBatch.Entries": [([], PREFIX + "EmptyBatchRequest")],
    "SendMessageBatch.Entries.MessageBody": [each for each in BODY if len(each[0]) < FULL],
    "SetQueueAttributes.Attributes": SETTINGS,
    "StartMessageMoveTask.DestinationArn": ARN,
    "StartMessageMoveTask.MaxNumberOfMessagesPerSecond": whole(1, 500),
    "StartMessageMoveTask.SourceArn": ARN,
    "TagQueue.Tags": TAGS,
    "UntagQueue.TagKeys": [(["not-there"], FINE), (["team", "team"], FINE), ([], INVALID)],
}

# What the answer is if a required parameter is absent; else MissingParameter.
ABSENT = {"QueueUrl": NO_QUEUE, "QueueName": INVALID}

WRONG_TYPES: dict[str, list[Any]] = {
    "string": [[], {}],  # AWS takes numbers and booleans for texts
    "integer": ["x", True, [], {}],
    "list": ["x", 5, {}],
    "map": ["x", 5, []],
}


@pytest.fixture(scope="module")
def world(memory_sqs: SqsServer) -> Iterator[World]:
    """Queues for all requests of this module."""
    world = World(memory_sqs)
    yield world
    for url in world.urls:
        try:
            world.client.delete_queue(QueueUrl=url)
        except world.client.exceptions.QueueDoesNotExist:
            continue


def with_value(request: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The request with another value at a place; the parameter of a batch is that of its first entry."""
    changed = deepcopy(request)
    target = changed if len(path) == 1 else changed[path[0]][0]
    target[path[-1]] = value
    return changed


def without(request: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The request without a parameter."""
    changed = deepcopy(request)
    target = changed if len(path) == 1 else changed[path[0]][0]
    target.pop(path[-1], None)
    return changed


def code_of(action: str, protocol: str, outcome: Outcome) -> str:
    """The code of the answer, or of the entry that failed; fails if the model does not have such an answer."""
    if outcome.status == 200:
        assert protocol == QUERY or outcome.fields <= answer_fields(action)
        return outcome.entry_code
    name = "QueueDoesNotExist" if outcome.code == NO_QUEUE else outcome.code.removeprefix(PREFIX)
    assert name in COMMON | modelled_errors(action), outcome
    return outcome.code


def shape_of(action: str, path: tuple[str, ...]) -> Any:
    """The model of a parameter."""
    shape = parameters_of(action)[path[0]]
    return shape if len(path) == 1 else shape.member.members[path[1]]


def is_required(action: str, path: tuple[str, ...]) -> bool:
    """Whether the model requires a parameter."""
    shape = MODEL.operation_model(action).input_shape
    if len(path) == 2:
        shape = shape.members[path[0]].member
    return path[-1] in shape.required_members


def shortened(value: Any) -> str:
    """A value for the message of a failed test."""
    return str(value)[:60]


def test_every_parameter_has_bounds() -> None:
    assert BOUNDS.keys() == set(IDS)
    assert VALID.keys() == set(ACTIONS)


@both
@pytest.mark.parametrize("action", ACTIONS)
def test_a_valid_request(world: World, protocol: str, action: str) -> None:
    outcome = ask(world.server, protocol, action, VALID[action](world))
    assert (outcome.status, code_of(action, protocol, outcome)) == (200, FINE)


@both
@every_parameter
def test_absent(world: World, protocol: str, action: str, path: tuple[str, ...]) -> None:
    request = VALID[action](world)
    expected = ABSENT.get(path[-1], MISSING) if is_required(action, path) else FINE
    if path == ("Entries", "VisibilityTimeout"):
        expected = MISSING  # optional in the model, and needed
    if path == ("Entries",) and protocol == QUERY:
        expected = PREFIX + "EmptyBatchRequest"  # the protocol has no other way to say it
    forms = [without(request, path)]
    if protocol == JSON:
        forms.append(with_value(request, path, None))
    for form in forms:
        assert code_of(action, protocol, ask(world.server, protocol, action, form)) == expected


@both
@every_parameter
def test_bounds(world: World, protocol: str, action: str, path: tuple[str, ...]) -> None:
    wrong = []
    for value, expected in BOUNDS[f"{action}.{'.'.join(path)}"]:
        if protocol == QUERY and value in ([], {}):
            continue  # the protocol cannot say it
        request = with_value(VALID[action](world), path, value)
        if path[-1] == "MessageBody":
            request = without(request, (*path[:-1], "MessageAttributes"))
        got = code_of(action, protocol, ask(world.server, protocol, action, request))
        if got != expected:
            wrong.append((shortened(value), got, expected))
    assert not wrong


@every_parameter
def test_of_a_wrong_type(world: World, action: str, path: tuple[str, ...]) -> None:
    request = VALID[action](world)
    shape = shape_of(action, path)
    values = list(WRONG_TYPES[shape.type_name])
    if shape.type_name == "list":
        values += [[each] for each in WRONG_TYPES.get(shape.member.type_name, ["x", 5, []])]
    if shape.type_name == "map":
        values += [{"a": each} for each in WRONG_TYPES.get(shape.value.type_name, ["x", 5, []])]
    for value in values:
        outcome = ask(world.server, JSON, action, with_value(request, path, value))
        assert (outcome.status, outcome.code) == (400, MALFORMED), value


@every_parameter
def test_a_number_that_is_none_by_query(world: World, action: str, path: tuple[str, ...]) -> None:
    if shape_of(action, path).type_name == "integer":
        for text in ("x", "1.5", "0x1", "1 ", "\u0661"):
            request = with_value(VALID[action](world), path, text)
            outcome = ask(world.server, QUERY, action, request)
            assert (outcome.status, outcome.code) == (400, MALFORMED), text


@every_parameter
def test_given_twice_by_json(world: World, action: str, path: tuple[str, ...]) -> None:
    """The later of two equal names is taken, as parsers of JSON do."""
    if len(path) == 2:
        return
    request = VALID[action](world)
    name = path[0]
    if name not in request:
        return
    text = json.dumps(request)
    first = json.dumps({name: WRONG_TYPES["string"][0] if isinstance(request[name], str) else "x"})
    outcome = ask_json(world.server, action, f"{first[:-1]}, {text[1:]}")
    assert outcome.code in (FINE, MALFORMED)
    assert ask_json(world.server, action, f"{text[:-1]}, {first[1:]}").code == MALFORMED


@pytest.mark.parametrize("action", ACTIONS)
def test_given_twice_by_query(world: World, action: str) -> None:
    """The same again changes nothing; of two different values neither is chosen."""
    for number in range(len(list(flat(action, VALID[action](world))))):
        request = VALID[action](world)
        name, value = list(flat(action, request))[number]
        assert ask_query(world.server, action, request, ((name, value + "1"),)).code == MALFORMED, name
        assert ask_query(world.server, action, request, ((name, value),)).code == FINE, name


@every_parameter
def test_two_values_by_query(world: World, action: str, path: tuple[str, ...]) -> None:
    """So it is with parameters that no valid request has, such as those for other queues."""
    place = ".1.".join(query_name(action, name) for name in path)
    number = ".1" if shape_of(action, path).type_name == "list" else ""
    twice = ((place + number, "a"), (place + number, "b"))
    assert ask_query(world.server, action, without(VALID[action](world), path), twice).code == MALFORMED


@every_parameter
def test_a_key_given_twice_by_query(world: World, action: str, path: tuple[str, ...]) -> None:
    """A map has a key once, whatever its values are."""
    if shape_of(action, path).type_name != "map" or path[-1] == "MessageSystemAttributes":
        return
    place = ".1.".join(query_name(action, name) for name in path)
    key, value = ("Key", "Value") if path[-1].lower() == "tags" else ("Name", "Value")
    if path[-1] == "MessageAttributes":
        value = "Value.DataType"
    twice = tuple((f"{place}.{n}.{part}", "a") for n in (1, 2) for part in (key, value))
    assert ask_query(world.server, action, without(VALID[action](world), path), twice).code == INVALID


# Members of an attribute: what the answer is for values of a String, but for those of another type


VALUE_MEMBERS: dict[str, list[tuple[dict[str, Any], str]]] = {
    "DataType": [
        ({"StringValue": "x"}, INVALID),
        ({"StringValue": "x", "DataType": ""}, INVALID),
        ({"StringValue": "x", "DataType": "String."}, INVALID),
        ({"StringValue": "x", "DataType": "string"}, INVALID),
        ({"StringValue": "x", "DataType": "String"}, FINE),
    ],
    "StringValue": [
        ({"DataType": "String"}, INVALID),
        ({"DataType": "String", "StringValue": ""}, INVALID),
        ({"DataType": "Binary", "StringValue": "x"}, INVALID),
        ({"DataType": "String", "StringValue": "\t\n\r \U0010ffff"}, FINE),
    ],
    "BinaryValue": [
        ({"DataType": "Binary"}, INVALID),
        ({"DataType": "Binary", "BinaryValue": ""}, INVALID),
        ({"DataType": "String", "BinaryValue": "AA=="}, INVALID),
        ({"DataType": "String", "StringValue": "x", "BinaryValue": "AA=="}, INVALID),
        ({"DataType": "Binary", "BinaryValue": "no base64"}, MALFORMED),
        ({"DataType": "Binary", "BinaryValue": "A"}, MALFORMED),
        ({"DataType": "Binary", "BinaryValue": "AA=="}, FINE),
    ],
    "StringListValues": [({"DataType": "String", "StringValue": "x", "StringListValues": ["x"]}, NO_LISTS)],
    "BinaryListValues": [({"DataType": "Binary", "BinaryValue": "AA==", "BinaryListValues": ["AA=="]}, NO_LISTS)],
}
WRONG_MEMBERS: dict[str, list[Any]] = {
    "string": [[], {}],
    "blob": [5, True, [], {}],
    "list": ["x", 5, {}, [[]], [{}]],
}


def with_attribute(action: str, world: World, value: Any) -> dict[str, Any]:
    """A request to send with one attribute of this value."""
    path = ("MessageAttributes",) if action == "SendMessage" else ("Entries", "MessageAttributes")
    return with_value(VALID[action](world), path, {"a": value})


@both
@pytest.mark.parametrize("action", ["SendMessage", "SendMessageBatch"])
@pytest.mark.parametrize("member", VALUE_MEMBERS)
def test_members_of_an_attribute(world: World, protocol: str, action: str, member: str) -> None:
    for value, expected in VALUE_MEMBERS[member]:
        outcome = ask(world.server, protocol, action, with_attribute(action, world, value))
        assert code_of(action, protocol, outcome) == expected, value


@pytest.mark.parametrize("action", ["SendMessage", "SendMessageBatch"])
@pytest.mark.parametrize("member", VALUE_MEMBERS)
def test_members_of_an_attribute_of_a_wrong_type(world: World, action: str, member: str) -> None:
    shape = MODEL.shape_for("MessageAttributeValue").members[member]
    for wrong in WRONG_MEMBERS[shape.type_name]:
        value = {"DataType": "String", "StringValue": "x", member: wrong}
        outcome = ask(world.server, JSON, action, with_attribute(action, world, value))
        assert (outcome.status, outcome.code) == (400, MALFORMED), wrong


def test_every_member_of_an_attribute_has_values() -> None:
    assert VALUE_MEMBERS.keys() == set(MODEL.shape_for("MessageAttributeValue").members)


@both
@pytest.mark.parametrize("action", BATCHES)
def test_entries_of_a_batch(world: World, protocol: str, action: str) -> None:
    request = VALID[action](world)
    (entry,) = request["Entries"]
    for count, expected in ((10, FINE), (11, PREFIX + "TooManyEntriesInBatchRequest")):
        request["Entries"] = [{**entry, "Id": str(n)} for n in range(count)]
        assert ask(world.server, protocol, action, request).code == expected
    request["Entries"] = [entry, entry]
    assert ask(world.server, protocol, action, request).code == PREFIX + "BatchEntryIdsNotDistinct"


@both
@pytest.mark.parametrize("name", ["MessageGroupId", "MessageDeduplicationId"])
def test_ids_of_a_fifo_queue(world: World, protocol: str, name: str) -> None:
    for value, expected in IDENTIFIER:
        ids = {"MessageGroupId": "g", "MessageDeduplicationId": uuid4().hex, name: value}
        for action, fields in (
            ("SendMessage", {"MessageBody": "x", **ids}),
            ("SendMessageBatch", {"Entries": [{"Id": "a", "MessageBody": "x", **ids}]}),
        ):
            outcome = ask(world.server, protocol, action, {"QueueUrl": world.ordered, **fields})
            assert code_of(action, protocol, outcome) == expected, value


@both
def test_the_attempt_id_of_a_fifo_queue(world: World, protocol: str) -> None:
    for value, expected in IDENTIFIER:
        fields = {"QueueUrl": world.ordered, "ReceiveRequestAttemptId": value, "VisibilityTimeout": 0}
        assert ask(world.server, protocol, "ReceiveMessage", fields).code == expected, value


@both
@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, FINE),
        ({"ContentBasedDeduplication": "true"}, FINE),
        ({"ContentBasedDeduplication": "perhaps"}, ATTRIBUTE_VALUE),
        ({"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}, FINE),
        ({"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}, FINE),
        ({"DeduplicationScope": "group"}, ATTRIBUTE_VALUE),
        ({"FifoThroughputLimit": "perServer"}, ATTRIBUTE_VALUE),
        ({"DeduplicationScope": "queue", "FifoThroughputLimit": "perMessageGroupId"}, ATTRIBUTE_VALUE),
        ({"FifoQueue": "perhaps"}, ATTRIBUTE_VALUE),
    ],
)
def test_attributes_of_a_fifo_queue(world: World, protocol: str, attributes: dict[str, str], expected: str) -> None:
    fields = {"QueueName": f"m-{uuid4().hex}.fifo", "Attributes": {"FifoQueue": "true", **attributes}}
    assert ask(world.server, protocol, "CreateQueue", fields).code == expected
