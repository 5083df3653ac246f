"""What a server that was stopped and started again still knows."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from penstock.domain.ids import TsidFactory
from penstock.domain.message import Message
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.sqlite import SqliteStore
from penstock.sqs.model import (
    CreateQueueRequest,
    ReceiveMessageRequest,
    SendMessageRequest,
    StartMessageMoveTaskRequest,
)
from penstock.sqs.queue.attributes import QueueAttributes
from penstock.sqs.server import SqsServerSettings, open_service
from penstock.sqs.service import SqsService
from penstock.testing.clock import VirtualClock
from tests.rigs.penstock_process import wait_until
from tests.services.sqs_actions import act
from tests.services.sqs_server import ACCOUNT, REGION, SqsServer, bodies, counts, drain, receive


def send(client: Any, url: str, group: str, body: str) -> dict[str, str]:
    answer: dict[str, str] = client.send_message(
        QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=body
    )
    return answer


def test_everything_comes_back(own_sqs: SqsServer) -> None:
    client = own_sqs.anyone
    attributes = {"FifoQueue": "true", "PartitionCount": "4", "VisibilityTimeout": "77"}
    fifo = client.create_queue(QueueName="orders.fifo", Attributes=attributes, tags={"team": "a"})["QueueUrl"]
    # Longer than this test may take on a busy machine.
    throttled = {
        "ThrottleSendCapacity": "10",
        "ThrottleSendRefillPerSecond": "0.001",
        "VisibilityTimeout": "3600",
    }
    plain = client.create_queue(QueueName="plain", Attributes=throttled)["QueueUrl"]
    gone = client.create_queue(QueueName="gone")["QueueUrl"]
    client.delete_queue(QueueUrl=gone)
    sent = [send(client, fifo, f"g{number % 5}", str(number)) for number in range(20)]
    named = {"a": {"DataType": "Binary", "BinaryValue": b"\x00\x01"}}
    client.send_message(QueueUrl=plain, MessageBody="ü", MessageAttributes=named)
    client.send_message(QueueUrl=plain, MessageBody="later", DelaySeconds=600)
    (old,) = receive(client, plain)
    (first,) = receive(client, fifo, 1)
    client.delete_message(QueueUrl=fifo, ReceiptHandle=first["ReceiptHandle"])
    (held, *_) = receive(client, fifo, 1)

    assert own_sqs.stop() == 0
    own_sqs.start()

    assert client.list_queues()["QueueUrls"] == [fifo, plain]
    shown = client.get_queue_attributes(QueueUrl=fifo, AttributeNames=["All"])["Attributes"]
    assert (shown["PartitionCount"], shown["VisibilityTimeout"]) == ("4", "77")
    assert client.list_queue_tags(QueueUrl=fifo)["Tags"] == {"team": "a"}
    # Leases continue after a planned stop, and their handles are valid.
    assert counts(client, fifo) == (18, 1, 0)
    assert counts(client, plain) == (0, 1, 1)
    assert receive(client, plain) == []
    for url, one in ((plain, old), (fifo, held)):
        client.change_message_visibility(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = receive(client, plain)
    assert (again["MessageId"], again["Body"], again["MessageAttributes"]) == (old["MessageId"], "ü", named)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    # Deduplication ids are remembered, deleted messages are not back, sequence numbers go on.
    repeated = send(client, fifo, first["Attributes"]["MessageGroupId"], first["Body"])
    assert repeated["MessageId"] == first["MessageId"]
    assert repeated["SequenceNumber"] == first["Attributes"]["SequenceNumber"]
    send(client, fifo, "g0", "20")
    messages = drain(client, fifo, 20)
    assert {message["MessageId"] for message in messages} >= {s["MessageId"] for s in sent} - {first["MessageId"]}
    for group in range(5):
        of_group = [one for one in messages if one["Attributes"]["MessageGroupId"] == f"g{group}"]
        assert bodies(of_group) == sorted(bodies(of_group), key=int)
        numbers = [one["Attributes"]["SequenceNumber"] for one in of_group]
        assert numbers == sorted(set(numbers))
    for _ in range(10):
        client.send_message(QueueUrl=plain, MessageBody="x")
    with pytest.raises(ClientError, match="Rate exceeded"):
        client.send_message(QueueUrl=plain, MessageBody="x")


@pytest.mark.parametrize("planned", [True, False])
def test_a_standard_handle_works_after_a_restart(own_sqs: SqsServer, planned: bool) -> None:
    client = own_sqs.anyone
    url = client.create_queue(QueueName="plain")["QueueUrl"]
    for number in range(4):
        client.send_message(QueueUrl=url, MessageBody=str(number))
    kept, deleted, hidden, shown = receive(client, url, 4)
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=kept["ReceiptHandle"], VisibilityTimeout=0)
    (newer,) = receive(client, url, 1)
    assert newer["MessageId"] == kept["MessageId"]

    restart(own_sqs, planned=planned)

    for message in (kept, deleted):
        client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    change = client.change_message_visibility
    change(QueueUrl=url, ReceiptHandle=hidden["ReceiptHandle"], VisibilityTimeout=600)
    change(QueueUrl=url, ReceiptHandle=shown["ReceiptHandle"], VisibilityTimeout=0)
    assert counts(client, url) == (1, 1, 0)
    restart(own_sqs, planned=planned)
    client.delete_message(QueueUrl=url, ReceiptHandle=newer["ReceiptHandle"])
    assert sum(counts(client, url)) == 2
    assert bodies(receive(client, url)) == (["3"] if planned else ["2", "3"])


@pytest.mark.parametrize("planned", [True, False])
def test_a_fifo_handle_after_a_restart(own_sqs: SqsServer, planned: bool) -> None:
    """The lease continues after a planned stop, and has expired after a crash."""
    client = own_sqs.anyone
    url = client.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for group, body in (("g", "0"), ("g", "1"), ("h", "2")):
        send(client, url, group, body)
    (first,) = receive(client, url, 1)
    restart(own_sqs, planned=planned)
    if planned:
        assert bodies(receive(client, url)) == ["2"]
        client.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        assert bodies(receive(client, url)) == ["1"]
    else:
        with pytest.raises(ClientError, match="expired"):
            client.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        assert sorted(bodies(receive(client, url))) == ["0", "1", "2"]


def test_a_deploy_redelivers_nothing_that_consumers_hold(own_sqs: SqsServer) -> None:
    client = own_sqs.anyone
    # Longer than this test may take on a busy machine.
    url = client.create_queue(QueueName="plain", Attributes={"VisibilityTimeout": "3600"})["QueueUrl"]
    for start in range(0, 300, 10):
        entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(start, start + 10)]
        client.send_message_batch(QueueUrl=url, Entries=entries)
    held = [message for _ in range(20) for message in receive(client, url)]
    restart(own_sqs, planned=True)
    assert counts(client, url) == (100, 200, 0)
    others = drain(client, url, 100)
    assert {message["MessageId"] for message in held}.isdisjoint(message["MessageId"] for message in others)
    assert counts(client, url) == (0, 200, 0)


@pytest.mark.parametrize("planned", [True, False])
def test_delayed_messages_are_counted_as_such_after_a_restart(own_sqs: SqsServer, planned: bool) -> None:
    client = own_sqs.anyone
    url = client.create_queue(QueueName="plain")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="now")
    client.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=900)
    assert counts(client, url) == (1, 0, 1)
    restart(own_sqs, planned=planned)
    assert counts(client, url) == (1, 0, 1)


def test_a_handle_of_before_a_crash_names_a_message_behind_many(own_sqs: SqsServer) -> None:
    """The message is not in memory when its handle comes: it is read first, so that a delete deletes."""
    client = own_sqs.anyone
    url = client.create_queue(QueueName="deep", Attributes={"VisibilityTimeout": "3600"})["QueueUrl"]
    body = "x" * 100_000
    for number in range(20):
        entries = [{"Id": str(n), "MessageBody": f"{number} {n} {body}"} for n in range(10)]
        client.send_message_batch(QueueUrl=url, Entries=entries)
    held = [message for _ in range(20) for message in receive(client, url)]
    restart(own_sqs, planned=False)
    for message in held[::-1]:
        client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    restart(own_sqs, planned=False)
    assert counts(client, url) == (0, 0, 0)
    assert receive(client, url) == []


@pytest.mark.parametrize("planned", [True, False])
def test_nothing_that_was_done_comes_undone(own_sqs: SqsServer, planned: bool) -> None:
    """Deletes, purges, dead letters and moves that were answered are still done after a stop or a crash."""
    client = own_sqs.anyone
    attributes = {"FifoQueue": "true", "VisibilityTimeout": "0"}

    def create(name: str, **more: str) -> str:
        url: str = client.create_queue(QueueName=f"{name}.fifo", Attributes={**attributes, **more})["QueueUrl"]
        return url

    def arn(url: str) -> str:
        return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{url.rpartition('/')[2]}"

    def policy(url: str) -> str:
        return json.dumps({"deadLetterTargetArn": arn(url), "maxReceiveCount": 1})

    deleted, purged, again, back = create("deleted"), create("purged"), create("again"), create("back")
    dead, moved_from = create("dead"), create("moved-from")
    source = create("source", RedrivePolicy=policy(dead))
    create("other-source", RedrivePolicy=policy(moved_from))
    for url in (deleted, purged, again, source, moved_from):
        for number in range(6):
            send(client, url, f"g{number % 2}", str(number))
    held = receive(client, deleted, VisibilityTimeout=600)
    client.delete_message(QueueUrl=deleted, ReceiptHandle=held[0]["ReceiptHandle"])
    entries = [{"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(held[1:5])]
    assert len(client.delete_message_batch(QueueUrl=deleted, Entries=entries)["Successful"]) == 4
    client.purge_queue(QueueUrl=purged)
    send(client, purged, "g0", "0")  # its id is forgotten
    client.delete_queue(QueueUrl=again)
    create("again")
    letters = len(receive(client, source))
    assert receive(client, source) == []
    client.start_message_move_task(SourceArn=arn(moved_from), DestinationArn=arn(back))
    wait_until(lambda: counts(client, back)[0] == 6)

    restart(own_sqs, planned=planned)
    assert sum(counts(client, deleted)) == 1
    assert bodies(receive(client, purged)) == ["0"]
    assert send(client, purged, "g0", "0")["MessageId"] == receive(client, purged)[0]["MessageId"]
    assert counts(client, again) == (0, 0, 0)
    assert (sum(counts(client, source)), sum(counts(client, dead))) == (6 - letters, letters)
    assert (sum(counts(client, moved_from)), sum(counts(client, back))) == (0, 6)
    assert sorted(bodies(receive(client, dead))) == [str(number) for number in range(letters)]
    assert [body for body in bodies(receive(client, back)) if int(body) % 2] == ["1", "3", "5"]


def restart(server: SqsServer, *, planned: bool) -> None:
    if planned:
        assert server.stop() == 0
    else:
        server.kill()
    server.start()


async def test_no_two_processes_grant_the_same_lease() -> None:
    """Otherwise a handle of the last process could delete another message of this one."""
    clock = VirtualClock()
    leases = set()
    for _ in range(50):
        async with open_service({"": MemoryStore()}, clock, TsidFactory(1), SqsServerSettings()) as service:
            queue = await service.create("q.fifo", QueueAttributes(fifo_queue=True), {})
            (partition,) = queue.partitions
            message = Message("m", b"x", clock.now_ms(), 1, group="g")
            await partition.shell.commit(partition.shell.ledger.send(partition.stream, [message], clock.now_ms()))
            ((delivery),) = queue.lease_now(1, 1000)
            leases.add(delivery.entries[0].lease_id)
        clock.advance(1.024)
    assert len(leases) == 50


@pytest.mark.parametrize("reopened", [False, True])
async def test_a_deduplication_id_is_forgotten_after_five_minutes(tmp_path: Path, reopened: bool) -> None:
    """The window begins with the first send, and duplicates do not prolong it; a restart neither."""
    clock = VirtualClock()
    store = tmp_path / "sqs.db"
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(service_on(store, clock))
        created = CreateQueueRequest("q.fifo", {"FifoQueue": "true", "ContentBasedDeduplication": "true"})
        url = (await act(service, "CreateQueue", created)).queue_url

        async def send_again() -> str:
            sent = await act(service, "SendMessage", SendMessageRequest(url, "same", message_group_id="g"))
            return str(sent.message_id)

        first = await send_again()
        for seconds in (200.0, 99.0):
            clock.advance(seconds)
            if reopened:
                await stack.aclose()
                service = await stack.enter_async_context(service_on(store, clock))
            assert await send_again() == first
        clock.advance(1.0)
        assert await send_again() != first


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("fifo", [False, True])
async def test_a_message_ends_with_its_retention(tmp_path: Path, reopened: bool, fifo: bool) -> None:
    """As on AWS, a dead letter of a standard queue keeps the age it has, and that of a FIFO queue begins again."""
    clock = VirtualClock()
    store = tmp_path / "sqs.db"
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(service_on(store, clock))

        async def create(name: str, **attributes: str) -> str:
            if fifo:
                name, attributes = f"{name}.fifo", {"FifoQueue": "true", **attributes}
            request = CreateQueueRequest(name, {"MessageRetentionPeriod": "60", **attributes})
            return str((await act(service, "CreateQueue", request)).queue_url)

        async def received(url: str) -> int:
            request = ReceiveMessageRequest(url, max_number_of_messages=10, visibility_timeout=0)
            return len((await act(service, "ReceiveMessage", request)).messages)

        dead = await create("dead")
        arn = service.arn_of(dead.rpartition("/")[2])
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
        source, plain = await create("source", RedrivePolicy=policy), await create("plain")
        for url in (source, plain):
            request = SendMessageRequest(url, "x")
            if fifo:
                request = SendMessageRequest(url, "x", message_group_id="g", message_deduplication_id="d")
            await act(service, "SendMessage", request)
        clock.advance(40.0)
        assert [await received(source), await received(source)] == [1, 0]
        clock.advance(19.0)
        if reopened:
            await stack.aclose()
            service = await stack.enter_async_context(service_on(store, clock))
        assert (await received(plain), await received(dead)) == (1, 1)
        clock.advance(2.0)
        assert (await received(plain), await received(dead)) == (0, 1 if fifo else 0)
        clock.advance(40.0)
        assert await received(dead) == 0


@pytest.mark.parametrize("fifo", [False, True])
async def test_the_retention_of_a_moved_message_begins_again(fifo: bool) -> None:
    clock = VirtualClock()
    async with open_service({"": MemoryStore()}, clock, TsidFactory(1), SqsServerSettings()) as service:

        async def create(name: str, **attributes: str) -> str:
            if fifo:
                name, attributes = f"{name}.fifo", {"FifoQueue": "true", **attributes}
            request = CreateQueueRequest(name, {"MessageRetentionPeriod": "60", **attributes})
            return str((await act(service, "CreateQueue", request)).queue_url)

        async def received(url: str) -> int:
            request = ReceiveMessageRequest(url, max_number_of_messages=10, visibility_timeout=0)
            return len((await act(service, "ReceiveMessage", request)).messages)

        dead, goal = await create("dead"), await create("goal")
        arns = [service.arn_of(url.rpartition("/")[2]) for url in (dead, goal)]
        policy = json.dumps({"deadLetterTargetArn": arns[0], "maxReceiveCount": 1})
        await create("source", RedrivePolicy=policy)
        request = SendMessageRequest(dead, "x")
        if fifo:
            request = SendMessageRequest(dead, "x", message_group_id="g", message_deduplication_id="d")
        await act(service, "SendMessage", request)
        clock.advance(59.0)
        await act(service, "StartMessageMoveTask", StartMessageMoveTaskRequest(arns[0], arns[1]))
        while not await received(goal):  # noqa: ASYNC110 its end is not announced
            await asyncio.sleep(0)
        clock.advance(59.0)
        assert await received(goal) == 1
        clock.advance(2.0)
        assert await received(goal) == 0


def service_on(store: Path, clock: VirtualClock) -> AbstractAsyncContextManager[SqsService]:
    """A service in this process on a database that the one before it used."""
    return open_service({"": SqliteStore(store)}, clock, TsidFactory(1), SqsServerSettings())
