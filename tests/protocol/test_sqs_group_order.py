"""The order in which a FIFO queue hands out its groups, as those who recorded AWS's answers found it.

A receive takes what it can of one group before the next. A group whose messages come back goes behind the others.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.protocol.conftest import MakeQueue
from tests.rigs.penstock_process import wait_until
from tests.services.sqs_server import SqsServer, bodies, counts, receive

LONG_S = 600


def queue_with(server: SqsServer, make_queue: MakeQueue, sent: str, **attributes: object) -> str:
    """A queue with these messages, each named after its group."""
    url = make_queue(server.anyone, fifo=True, ContentBasedDeduplication="true", **attributes)
    for body in sent.split():
        server.anyone.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[0])
    return url


def taken(messages: Iterable[dict[str, Any]]) -> str:
    return " ".join(bodies(messages))


def test_a_group_before_the_next(sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = queue_with(sqs, make_queue, "a1 b1 a2 a3")
    assert taken(receive(sqs.anyone, url)) == "a1 a2 a3 b1"


def test_part_of_a_group_keeps_back_the_rest(sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = queue_with(sqs, make_queue, "a1 a2 a3 b1 c1")
    assert taken(receive(sqs.anyone, url, 2)) == "a1 a2"
    assert taken(receive(sqs.anyone, url, 1)) == "b1"
    assert taken(receive(sqs.anyone, url)) == "c1"


def test_groups_received_for_no_time_go_behind_the_others(sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = queue_with(sqs, make_queue, "a1 b1 b2 c1 a2")
    assert taken(receive(sqs.anyone, url, 3, VisibilityTimeout=0)) == "a1 a2 b1"
    assert taken(receive(sqs.anyone, url, VisibilityTimeout=0)) == "c1 a1 a2 b1 b2"


@pytest.mark.parametrize("timeout_s", [0, 1])
def test_a_message_that_came_back_goes_alone_and_behind_other_groups(
    sqs: SqsServer, make_queue: MakeQueue, timeout_s: int
) -> None:
    url = queue_with(sqs, make_queue, "a1 a2 b1")
    first, _ = receive(sqs.anyone, url, 2, VisibilityTimeout=LONG_S)
    sqs.anyone.change_message_visibility(
        QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=timeout_s
    )
    wait_until(lambda: counts(sqs.anyone, url) == (2, 1, 0))
    assert taken(receive(sqs.anyone, url)) == "b1 a1"


@pytest.mark.parametrize(("held", "others"), [(0, ""), (1, "a1"), (2, "a1 a2")])
def test_a_message_that_is_held_longer_keeps_back_those_after_it(
    sqs: SqsServer, make_queue: MakeQueue, held: int, others: str
) -> None:
    url = queue_with(sqs, make_queue, "a1 a2 a3")
    messages = receive(sqs.anyone, url)
    for number, message in enumerate(messages):
        sqs.anyone.change_message_visibility(
            QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=LONG_S if number == held else 0
        )
    assert taken(receive(sqs.anyone, url)) == others


def test_what_was_not_received_of_a_group_comes_after_its_deletions(sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = queue_with(sqs, make_queue, "a1 b1 a2 b2 a3 a4 c1")
    for message in receive(sqs.anyone, url, 2):
        sqs.anyone.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert taken(receive(sqs.anyone, url)) == "b1 b2 c1 a3 a4"


def test_a_group_of_which_one_message_is_in_flight_waits(sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = queue_with(sqs, make_queue, "a1 b1 a2 b2 a3 a4 c1")
    first, _ = receive(sqs.anyone, url, 2)
    sqs.anyone.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert taken(receive(sqs.anyone, url)) == "b1 b2 c1"


def test_a_group_that_was_emptied_is_used_again(sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = queue_with(sqs, make_queue, "a1")
    (message,) = receive(sqs.anyone, url)
    sqs.anyone.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert receive(sqs.anyone, url) == []
    sqs.anyone.send_message(QueueUrl=url, MessageBody="a2", MessageGroupId="a")
    assert taken(receive(sqs.anyone, url)) == "a2"


def test_a_message_without_delay_has_that_of_its_queue(sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(sqs.anyone, fifo=True, ContentBasedDeduplication="true", DelaySeconds=LONG_S)
    sqs.anyone.send_message(QueueUrl=url, MessageBody="a1", MessageGroupId="a", DelaySeconds=0)
    assert counts(sqs.anyone, url) == (0, 0, 1)
