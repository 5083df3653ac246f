"""Many clients at once: one of several equal requests wins, and nothing is handed out twice."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.protocol.conftest import MakeQueue
from tests.services.sqs_server import SqsServer, bodies, counts, receive

CLIENTS = 8

Everyone = Callable[[Callable[[int], Any]], list[Any]]


@pytest.fixture(scope="module")
def everyone() -> Iterator[Everyone]:
    """Does something with several threads that begin together; returns what each got, an error's code included."""
    with ThreadPoolExecutor(CLIENTS) as pool:

        def at_once(do: Callable[[int], Any]) -> list[Any]:
            ready = threading.Barrier(CLIENTS)

            def begin(number: int) -> Any:
                ready.wait(60)
                try:
                    return do(number)
                except ClientError as error:
                    return error.response["Error"]["Code"].rpartition(".")[2]

            return list(pool.map(begin, range(CLIENTS)))

        yield at_once


def test_one_queue_is_created_and_deleted_once(sqs: SqsServer, everyone: Everyone) -> None:
    client, name = sqs.anyone, f"q-{uuid4().hex}"
    urls = set(everyone(lambda _: client.create_queue(QueueName=name)["QueueUrl"]))
    assert len(urls) == 1
    url = urls.pop()
    assert client.list_queues(QueueNamePrefix=name)["QueueUrls"] == [url]
    ends = everyone(lambda _: client.delete_queue(QueueUrl=url) and "deleted")
    assert sorted(ends) == ["NonExistentQueue"] * (CLIENTS - 1) + ["deleted"]


def test_of_several_kinds_of_a_queue_one_is_created(sqs: SqsServer, everyone: Everyone) -> None:
    client, name = sqs.anyone, f"q-{uuid4().hex}"

    def create(number: int) -> str:
        url: str = client.create_queue(QueueName=name, Attributes={"DelaySeconds": str(number % 2)})["QueueUrl"]
        return url

    ends = everyone(create)
    assert ends.count("QueueAlreadyExists") == CLIENTS // 2
    assert len(set(ends)) == 2
    client.delete_queue(QueueUrl=client.get_queue_url(QueueName=name)["QueueUrl"])


def test_one_purge_is_allowed(sqs: SqsServer, everyone: Everyone, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    client.send_message(QueueUrl=url, MessageBody="x")
    ends = everyone(lambda _: client.purge_queue(QueueUrl=url) and "purged")
    assert sorted(ends) == ["PurgeQueueInProgress"] * (CLIENTS - 1) + ["purged"]
    assert counts(client, url) == (0, 0, 0)


def test_one_message_has_a_deduplication_id(sqs: SqsServer, everyone: Everyone, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True)

    def send(number: int) -> tuple[str, str]:
        sent = client.send_message(
            QueueUrl=url, MessageBody=str(number), MessageGroupId=f"g{number}", MessageDeduplicationId="once"
        )
        return sent["MessageId"], sent["SequenceNumber"]

    assert len(set(everyone(send))) == 1
    assert counts(client, url) == (1, 0, 0)


def test_changes_of_one_queue_do_not_undo_each_other(sqs: SqsServer, everyone: Everyone, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    everyone(lambda number: client.tag_queue(QueueUrl=url, Tags={str(number): "v"}))
    assert client.list_queue_tags(QueueUrl=url)["Tags"].keys() == {str(number) for number in range(CLIENTS)}
    names = ["VisibilityTimeout", "DelaySeconds", "MessageRetentionPeriod", "MaximumMessageSize"]
    values = dict(zip(names, ("77", "7", "7777", "7777"), strict=True))

    def change(number: int) -> None:
        name = names[number % len(names)]
        client.set_queue_attributes(QueueUrl=url, Attributes={name: values[name]})

    everyone(change)
    assert client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"] == values


def test_every_message_is_handed_out_once(sqs: SqsServer, everyone: Everyone, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client)
    sent = {f"{number}-{n}" for number in range(CLIENTS) for n in range(50)}

    def send(number: int) -> None:
        for start in range(0, 50, 10):
            entries = [{"Id": str(n), "MessageBody": f"{number}-{n}"} for n in range(start, start + 10)]
            client.send_message_batch(QueueUrl=url, Entries=entries)

    def consume(number: int) -> list[str]:
        got: list[str] = []
        while messages := receive(client, url, 1 + number):
            got += bodies(messages)
            entries = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(messages)]
            assert len(client.delete_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == len(entries)
        return got

    everyone(send)
    got = [body for bodies_of_one in everyone(consume) for body in bodies_of_one]
    assert len(got) == len(sent)
    assert set(got) == sent
    assert counts(client, url) == (0, 0, 0)


@pytest.mark.parametrize("partitions", [1, 4])
def test_groups_keep_their_order_for_several_consumers(
    sqs: SqsServer, everyone: Everyone, make_queue: MakeQueue, partitions: int
) -> None:
    """Between a receive and the deletes no other consumer has a message of the group."""
    client = sqs.anyone
    url = make_queue(client, fifo=True, PartitionCount=partitions)
    length = 20
    seen: dict[str, list[int]] = {f"g{number}": [] for number in range(CLIENTS)}
    held = {group: threading.Lock() for group in seen}
    left = [CLIENTS * length]

    def send(number: int) -> None:
        for start in range(0, length, 10):
            entries = [
                {
                    "Id": str(n),
                    "MessageBody": str(n),
                    "MessageGroupId": f"g{number}",
                    "MessageDeduplicationId": f"{number}-{n}",
                }
                for n in range(start, start + 10)
            ]
            client.send_message_batch(QueueUrl=url, Entries=entries)

    def consume(_: int) -> None:
        while left[0] > 0:
            messages = receive(client, url, 4, WaitTimeSeconds=1)
            groups = {message["Attributes"]["MessageGroupId"] for message in messages}
            for group in groups:
                assert held[group].acquire(blocking=False), f"two consumers hold messages of {group}"
            for message in messages:
                seen[message["Attributes"]["MessageGroupId"]].append(int(message["Body"]))
            for group in groups:
                held[group].release()
            for message in messages:
                client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            with counter:
                left[0] -= len(messages)

    counter = threading.Lock()
    everyone(send)
    everyone(consume)
    assert seen == {group: list(range(length)) for group in seen}
    assert counts(client, url) == (0, 0, 0)


@pytest.mark.parametrize("fifo", [False, True])
def test_a_message_is_deleted_by_several(sqs: SqsServer, everyone: Everyone, make_queue: MakeQueue, fifo: bool) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=fifo)
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if fifo else {}
    client.send_message(QueueUrl=url, MessageBody="x", **ids)
    (message,) = receive(client, url)
    ends = everyone(lambda _: client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]) and "deleted")
    assert set(ends) == {"deleted"}
    assert counts(client, url) == (0, 0, 0)
