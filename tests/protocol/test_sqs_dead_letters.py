"""Dead letters and message move tasks as boto3 sees them."""

import json
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.protocol.conftest import Call, MakeQueue
from tests.rigs.penstock_process import wait_until
from tests.services.sqs_server import ACCOUNT, REGION, SqsServer, bodies, counts, drain, receive


def arn(url: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{url.rpartition('/')[2]}"


def redrive(url: str, count: int | str = 1) -> str:
    return json.dumps({"deadLetterTargetArn": arn(url), "maxReceiveCount": count})


def with_dead_letters(client: Any, make_queue: MakeQueue, number: int, *, fifo: bool = False) -> tuple[str, str]:
    """A source and its dead-letter queue, which holds this many messages of it."""
    dead = make_queue(client, fifo=fifo)
    source = make_queue(client, fifo=fifo, RedrivePolicy=redrive(dead))
    for n in range(number):
        extra = {"MessageGroupId": "g", "MessageDeduplicationId": str(n)} if fifo else {}
        client.send_message(QueueUrl=source, MessageBody=str(n), **extra)

    def all_moved() -> bool:
        receive(client, source, VisibilityTimeout=0)
        return counts(client, dead)[0] == number

    wait_until(all_moved)
    return source, dead


def task_of(client: Any, dead: str) -> dict[str, Any]:
    tasks: list[dict[str, Any]] = client.list_message_move_tasks(SourceArn=arn(dead))["Results"]
    return tasks[0]


def test_moved_after_the_last_receive(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    dead = make_queue(client)
    source = make_queue(client, RedrivePolicy=redrive(dead, 2))
    attributes = {"colour": {"DataType": "String", "StringValue": "blue"}}
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    sent = client.send_message(
        QueueUrl=source, MessageBody="poison", MessageAttributes=attributes, MessageSystemAttributes=trace
    )
    for count in ("1", "2"):
        (message,) = receive(client, source, VisibilityTimeout=0)
        assert message["Attributes"]["ApproximateReceiveCount"] == count
    assert counts(client, dead) == (0, 0, 0)
    assert receive(client, source) == []
    (letter,) = receive(client, dead, WaitTimeSeconds=5)
    assert letter["MessageId"] == sent["MessageId"]
    assert letter["Body"] == "poison"
    assert letter["MessageAttributes"] == attributes
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == arn(source)
    assert letter["Attributes"]["AWSTraceHeader"] == trace["AWSTraceHeader"]["StringValue"]
    assert letter["Attributes"]["SentTimestamp"] == message["Attributes"]["SentTimestamp"]
    assert counts(client, source) == (0, 0, 0)
    assert client.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [source]


@pytest.mark.parametrize("fifo", [False, True])
def test_a_receive_that_moves_a_dead_letter_answers_after_the_move(
    sqs: SqsServer, make_queue: MakeQueue, fifo: bool
) -> None:
    client = sqs.anyone
    dead = make_queue(client, fifo=fifo)
    source = make_queue(client, fifo=fifo, RedrivePolicy=redrive(dead))
    for number in range(50):
        extra = {"MessageGroupId": f"g{number}", "MessageDeduplicationId": f"{number}"} if fifo else {}
        client.send_message(QueueUrl=source, MessageBody=str(number), **extra)
        assert bodies(receive(client, source, VisibilityTimeout=0)) == [str(number)]
        assert receive(client, source) == []
        assert bodies(receive(client, dead)) == [str(number)]


def test_a_receive_that_also_returns_messages_answers_after_the_move(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    dead = make_queue(client)
    source = make_queue(client, RedrivePolicy=redrive(dead))
    for number in range(20):
        client.send_message(QueueUrl=source, MessageBody=f"poison {number}")
        receive(client, source, VisibilityTimeout=0)
        client.send_message(QueueUrl=source, MessageBody=f"good {number}")
        (good,) = receive(client, source)
        assert bodies(receive(client, dead)) == [f"poison {number}"]
        client.delete_message(QueueUrl=source, ReceiptHandle=good["ReceiptHandle"])


def test_receives_are_counted_on_in_the_dead_letter_queue(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    last = make_queue(client)
    dead = make_queue(client, RedrivePolicy=redrive(last, 2))
    source = make_queue(client, RedrivePolicy=redrive(dead, 2))
    client.send_message(QueueUrl=source, MessageBody="poison")
    seen = []
    for url in (source, source, source, dead, dead, dead, last):
        seen += [
            (one["Attributes"]["ApproximateReceiveCount"], one["Attributes"]["ApproximateFirstReceiveTimestamp"])
            for one in receive(client, url, VisibilityTimeout=0)
        ]
    assert [count for count, _ in seen] == ["1", "2", "3", "4", "5"]
    assert len({first for _, first in seen}) == 1
    # A message that is moved back starts again.
    client.start_message_move_task(SourceArn=arn(last), DestinationArn=arn(source))
    (message,) = receive(client, source, WaitTimeSeconds=5)
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


def test_a_fifo_queue_goes_on_with_the_next(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    dead = make_queue(client, fifo=True)
    source = make_queue(client, fifo=True, RedrivePolicy=redrive(dead))
    for body in ("poison", "good"):
        client.send_message(QueueUrl=source, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=body)
    assert bodies(receive(client, source, 1, VisibilityTimeout=0)) == ["poison"]
    assert bodies(receive(client, source, 1, WaitTimeSeconds=5)) == ["good"]
    (letter,) = receive(client, dead, WaitTimeSeconds=5)
    assert (letter["Body"], letter["Attributes"]["MessageGroupId"]) == ("poison", "g")
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == arn(source)


def test_a_receive_that_finds_only_dead_letters_of_groups_looks_on(sqs: SqsServer, make_queue: MakeQueue) -> None:
    """It does not wait for messages, but does not answer that there are none either."""
    client = sqs.anyone
    dead = make_queue(client, fifo=True)
    source = make_queue(client, fifo=True, RedrivePolicy=redrive(dead))
    for body in ("a1", "b1", "a2", "b2", "a3"):
        client.send_message(QueueUrl=source, MessageBody=body, MessageGroupId=body[0], MessageDeduplicationId=body)
    assert sorted(bodies(receive(client, source, VisibilityTimeout=0))) == ["a1", "a2", "a3", "b1", "b2"]
    client.send_message(QueueUrl=source, MessageBody="a4", MessageGroupId="a", MessageDeduplicationId="a4")
    assert bodies(receive(client, source, WaitTimeSeconds=0)) == ["a4"]
    letters = bodies(receive(client, dead))
    assert [body for body in letters if body[0] == "a"] == ["a1", "a2", "a3"]
    assert sorted(letters) == ["a1", "a2", "a3", "b1", "b2"]


def test_partitioned_fifo_queues_keep_groups_in_order(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    dead = make_queue(client, fifo=True, PartitionCount=2)
    source = make_queue(client, fifo=True, PartitionCount=8, RedrivePolicy=redrive(dead))
    sent = [f"{group}{number}" for number in range(3) for group in "abcdef"]
    for body in sent:
        client.send_message(QueueUrl=source, MessageBody=body, MessageGroupId=body[0], MessageDeduplicationId=body)

    def all_moved() -> bool:
        receive(client, source, VisibilityTimeout=0)
        return counts(client, dead)[0] == len(sent)

    wait_until(all_moved)
    letters = bodies(drain(client, dead, len(sent)))
    for group in "abcdef":
        assert [body for body in letters if body[0] == group] == [body for body in sent if body[0] == group]


def test_a_dead_letter_queue_that_vanished(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    dead = make_queue(client)
    source = make_queue(client, RedrivePolicy=redrive(dead))
    client.send_message(QueueUrl=source, MessageBody="x")
    client.delete_queue(QueueUrl=dead)
    for count in range(1, 5):
        (message,) = receive(client, source, VisibilityTimeout=0)
        assert message["Attributes"]["ApproximateReceiveCount"] == str(count)
    make_queue(client, name=dead.rpartition("/")[2])
    assert receive(client, source, VisibilityTimeout=0) == []
    assert bodies(receive(client, dead, WaitTimeSeconds=5)) == ["x"]


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("not JSON", "InvalidAttributeValue"),
        ("[]", "InvalidAttributeValue"),
        ('{"maxReceiveCount": 1}', "InvalidParameterValue"),
        (json.dumps({"deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:dead"}), "InvalidParameterValue"),
        ('{"maxReceiveCount": 1, "deadLetterTargetArn": "dead"}', "InvalidParameterValue"),
        (redrive("/not-there"), "InvalidParameterValue"),
    ],
)
def test_redrive_policies_that_are_refused(
    memory_sqs: SqsServer, make_queue: MakeQueue, policy: str, error: str
) -> None:
    client = memory_sqs.anyone
    source = make_queue(client)
    calls: tuple[Call, ...] = (
        lambda: client.set_queue_attributes(QueueUrl=source, Attributes={"RedrivePolicy": policy}),
        lambda: client.create_queue(QueueName=f"q-{uuid4().hex}", Attributes={"RedrivePolicy": policy}),
    )
    for call in calls:
        with pytest.raises(ClientError) as caught:
            call()
        assert caught.value.response["Error"]["Code"] == error
    assert "RedrivePolicy" not in client.get_queue_attributes(QueueUrl=source, AttributeNames=["All"])["Attributes"]


def test_redrive_counts_and_kinds(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    dead, fifo = make_queue(client), make_queue(client, fifo=True)
    source = make_queue(client)
    for count, shown in ((0, "0"), (1001, "1001"), ("many", "many"), (True, "true"), (None, "null"), (2.5, "2.5")):
        wrong = json.dumps({"deadLetterTargetArn": arn(dead), "maxReceiveCount": count})
        with pytest.raises(ClientError, match=f"Invalid value for maxReceiveCount: {shown}, valid values are"):
            client.set_queue_attributes(QueueUrl=source, Attributes={"RedrivePolicy": wrong})
    for policy in (redrive(dead, 0), redrive(fifo)):
        with pytest.raises(ClientError) as caught:
            client.set_queue_attributes(QueueUrl=source, Attributes={"RedrivePolicy": policy})
        assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
    client.set_queue_attributes(QueueUrl=source, Attributes={"RedrivePolicy": redrive(dead, "7")})
    attributes = client.get_queue_attributes(QueueUrl=source, AttributeNames=["RedrivePolicy"])["Attributes"]
    assert json.loads(attributes["RedrivePolicy"]) == {"deadLetterTargetArn": arn(dead), "maxReceiveCount": 7}
    client.set_queue_attributes(QueueUrl=source, Attributes={"RedrivePolicy": ""})
    assert "queueUrls" not in client.list_dead_letter_source_queues(QueueUrl=dead)


def test_who_may_send_dead_letters_here(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    source, other = make_queue(client), make_queue(client)
    dead = make_queue(client, RedriveAllowPolicy='{"redrivePermission": "denyAll"}')

    def allow(policy: dict[str, object]) -> None:
        client.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": json.dumps(policy)})

    def use(queue: str) -> None:
        client.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": redrive(dead)})

    with pytest.raises(ClientError, match="does not allow"):
        use(source)
    allow({"redrivePermission": "byQueue", "sourceQueueArns": [arn(source)]})
    use(source)
    with pytest.raises(ClientError, match="does not allow"):
        use(other)
    allow({"redrivePermission": "allowAll"})
    use(other)
    assert client.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == sorted([source, other])
    for bad in ({"redrivePermission": "byQueue"}, {"redrivePermission": "nobody"}, {}):
        with pytest.raises(ClientError):
            allow({**bad, "extra": 1} if not bad else dict(bad))


def test_sources_by_page(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    dead = make_queue(client)
    sources = sorted(make_queue(client, RedrivePolicy=redrive(dead)) for _ in range(5))
    pages = client.get_paginator("list_dead_letter_source_queues").paginate(
        QueueUrl=dead, PaginationConfig={"PageSize": 2}
    )
    listed = [page["queueUrls"] for page in pages]
    assert [len(page) for page in listed] == [2, 2, 1]
    assert [url for page in listed for url in page] == sources


@pytest.mark.parametrize("fifo", [False, True])
def test_a_move_takes_messages_back_to_their_source(sqs: SqsServer, make_queue: MakeQueue, fifo: bool) -> None:
    client = sqs.anyone
    source, dead = with_dead_letters(client, make_queue, 4, fifo=fifo)
    handle = client.start_message_move_task(SourceArn=arn(dead))["TaskHandle"]
    assert handle
    wait_until(lambda: task_of(client, dead)["Status"] == "COMPLETED")
    task = task_of(client, dead)
    assert task["ApproximateNumberOfMessagesMoved"] == task["ApproximateNumberOfMessagesToMove"] == 4
    assert task["SourceArn"] == arn(dead)
    assert "TaskHandle" not in task
    assert counts(client, dead) == (0, 0, 0)
    back = receive(client, source, WaitTimeSeconds=5)
    assert sorted(bodies(back)) == ["0", "1", "2", "3"]
    if fifo:
        assert bodies(back) == ["0", "1", "2", "3"]
    assert {message["Attributes"]["ApproximateReceiveCount"] for message in back} == {"1"}
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.cancel_message_move_task(TaskHandle=handle)


@pytest.mark.parametrize("fifo", [False, True])
def test_a_dead_letter_is_the_same_message_and_a_moved_one_is_new(
    sqs: SqsServer, make_queue: MakeQueue, fifo: bool
) -> None:
    """In a FIFO dead-letter queue the id of the message stands for its deduplication id, so that no two are equal."""
    client = sqs.anyone
    source, dead = with_dead_letters(client, make_queue, 0, fifo=fifo)
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if fifo else {}
    attributes = {"a": {"DataType": "Binary.x", "BinaryValue": b"\0"}}
    sent = client.send_message(QueueUrl=source, MessageBody="x", MessageAttributes=attributes, **ids)
    receive(client, source, VisibilityTimeout=0)
    assert receive(client, source) == []
    (letter,) = receive(client, dead, VisibilityTimeout=0)
    assert letter["MessageId"] == sent["MessageId"]
    client.start_message_move_task(SourceArn=arn(dead))
    (back,) = receive(client, source, WaitTimeSeconds=5)
    assert back["MessageId"] not in (sent["MessageId"], "")
    assert (back["Body"], back["MessageAttributes"]) == ("x", attributes)
    assert "DeadLetterQueueSourceArn" not in back["Attributes"]
    assert int(back["Attributes"]["SentTimestamp"]) >= int(letter["Attributes"]["ApproximateFirstReceiveTimestamp"])
    if fifo:
        assert letter["Attributes"]["MessageDeduplicationId"] == sent["MessageId"]
        assert back["Attributes"]["MessageGroupId"] == "g"


def test_a_move_has_a_pace_and_can_be_cancelled(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    _, dead = with_dead_letters(client, make_queue, 5)
    goal = make_queue(client)
    started = client.start_message_move_task(
        SourceArn=arn(dead), DestinationArn=arn(goal), MaxNumberOfMessagesPerSecond=2
    )
    wait_until(lambda: counts(client, goal)[0] == 2)
    task = task_of(client, dead)
    assert (task["Status"], task["TaskHandle"], task["DestinationArn"], task["MaxNumberOfMessagesPerSecond"]) == (
        "RUNNING",
        started["TaskHandle"],
        arn(goal),
        2,
    )
    with pytest.raises(ClientError, match="already a task running"):
        client.start_message_move_task(SourceArn=arn(dead))
    cancelled = client.cancel_message_move_task(TaskHandle=started["TaskHandle"])
    assert cancelled["ApproximateNumberOfMessagesMoved"] == 2
    assert task_of(client, dead)["Status"] == "CANCELLED"
    assert (counts(client, dead)[0], counts(client, goal)[0]) == (3, 2)
    client.start_message_move_task(SourceArn=arn(dead), DestinationArn=arn(goal))
    wait_until(lambda: counts(client, goal)[0] == 5)
    listed = client.list_message_move_tasks(SourceArn=arn(dead), MaxResults=10)["Results"]
    assert [task["Status"] for task in listed] == ["COMPLETED", "CANCELLED"]


def test_a_move_whose_destination_is_deleted_loses_nothing(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    _, dead = with_dead_letters(client, make_queue, 3)
    goal = make_queue(client)
    client.start_message_move_task(SourceArn=arn(dead), DestinationArn=arn(goal), MaxNumberOfMessagesPerSecond=1)
    wait_until(lambda: task_of(client, dead)["ApproximateNumberOfMessagesMoved"] == 1)
    client.delete_queue(QueueUrl=goal)
    wait_until(lambda: task_of(client, dead)["Status"] != "RUNNING")
    assert task_of(client, dead)["Status"] == "FAILED"
    assert task_of(client, dead)["FailureReason"]
    assert counts(client, dead) == (2, 0, 0)


def test_a_move_that_does_not_know_where_to_fails(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    _, dead = with_dead_letters(client, make_queue, 0)
    client.send_message(QueueUrl=dead, MessageBody="sent here directly")
    client.start_message_move_task(SourceArn=arn(dead))
    wait_until(lambda: task_of(client, dead)["Status"] == "FAILED")
    assert "CouldNotDetermineMessageSource" in task_of(client, dead)["FailureReason"]
    assert bodies(receive(client, dead)) == ["sent here directly"]


def test_moves_that_are_refused(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    source, dead = with_dead_letters(client, make_queue, 0)
    fifo = make_queue(client, fifo=True)
    for call in (client.start_message_move_task, client.list_message_move_tasks):
        with pytest.raises(client.exceptions.ResourceNotFoundException):
            call(SourceArn=arn("/not-there"))
    refused: list[dict[str, Any]] = [
        {"SourceArn": arn(source)},
        {"SourceArn": arn(dead), "DestinationArn": arn(dead)},
        {"SourceArn": arn(dead), "DestinationArn": arn(fifo)},
        {"SourceArn": arn(dead), "MaxNumberOfMessagesPerSecond": 0},
        {"SourceArn": arn(dead), "MaxNumberOfMessagesPerSecond": 501},
    ]
    for parameters in refused:
        with pytest.raises(ClientError) as caught:
            client.start_message_move_task(**parameters)
        assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
    with pytest.raises(ClientError, match="Value for parameter TaskHandle is invalid"):
        client.cancel_message_move_task(TaskHandle="nonsense")
    with pytest.raises(ClientError, match="MaxResults"):
        client.list_message_move_tasks(SourceArn=arn(dead), MaxResults=11)
