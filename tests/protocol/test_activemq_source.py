"""ActiveMQ itself: facts about the broker that the source is built on, its crashes and restarts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.domain.errors import FailedPrecondition, PenstockError, Unavailable
from penstock.queues.activemq.connection import StompAddress, StompConnection
from penstock.queues.activemq.publisher import ActiveMqPublisher
from penstock.queues.activemq.source import ActiveMqSource
from penstock.queues.activemq.stomp import Frame
from penstock.queues.port import Publication, Received, Source
from penstock.queues.uri import StompUri
from tests.services.activemq import ActiveMQ, running_activemq
from tests.services.nats import free_port
from tests.sources.receiving import PATIENCE_S, bodies, numbered, publications, take, take_until

pytestmark = pytest.mark.xdist_group("activemq")


class Client:
    """A plain STOMP client that collects what is delivered."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Frame] = asyncio.Queue()
        self.connection: StompConnection

    async def send(self, queue: str, body: bytes, **headers: str) -> None:
        destination = {"destination": f"/queue/{queue}", "persistent": "true"}
        await self.connection.confirmed(self.connection.request("SEND", destination | headers, body))

    async def subscribe(self, queue: str, **headers: str) -> None:
        subscription = {"destination": f"/queue/{queue}", "id": queue, "ack": "client-individual"}
        await self.connection.confirmed(self.connection.request("SUBSCRIBE", subscription | headers))

    async def next(self) -> Frame:
        async with asyncio.timeout(PATIENCE_S):
            return await self.messages.get()


@asynccontextmanager
async def client_of(broker: ActiveMQ) -> AsyncIterator[Client]:
    client = Client()
    address = StompAddress("127.0.0.1", broker.port)
    client.connection = await StompConnection.connect(address, client.messages.put_nowait, ignore)
    try:
        yield client
    finally:
        await client.connection.close()


def ignore(_reason: PenstockError) -> None:
    pass


def new_queue(broker: ActiveMQ) -> StompUri:
    return StompUri("127.0.0.1", broker.port, f"q-{uuid4().hex}")


@asynccontextmanager
async def consuming(uri: StompUri) -> AsyncIterator[ActiveMqSource]:
    source = ActiveMqSource("orders", uri)
    await source.open()
    try:
        yield source
    finally:
        await source.close()


async def publish(uri: StompUri, *messages: Publication) -> None:
    publisher = ActiveMqPublisher(uri)
    await publisher.open()
    assert await publisher.publish(messages) == [None] * len(messages)
    await publisher.close()


async def take_when_back(source: Source, count: int) -> list[Received]:
    """Take from a source whose broker is coming back."""
    taken: list[Received] = []
    async with asyncio.timeout(2 * PATIENCE_S):
        while len(taken) < count:
            try:
                taken += await source.receive()
            except Unavailable:
                await asyncio.sleep(0.05)
    return taken


# Facts about the broker


async def test_the_broker_keeps_jmsxgroupid_but_does_not_deliver_it_over_stomp(activemq: ActiveMQ) -> None:
    queue = new_queue(activemq).queue
    async with client_of(activemq) as client:
        await client.send(queue, b"of another group", JMSXGroupID="other")
        await client.send(queue, b"grouped", JMSXGroupID="order-12345")
        await client.subscribe(queue, selector="JMSXGroupID = 'order-12345'")
        frame = await client.next()

    assert frame.body == b"grouped"
    assert "JMSXGroupID" not in frame.headers


async def test_our_publisher_s_group_is_both_jms_s_and_one_that_is_delivered(activemq: ActiveMQ) -> None:
    uri = new_queue(activemq)
    await publish(uri, Publication(b"other", "other", None), Publication(b"grouped", "order: 1", "the id"))
    async with client_of(activemq) as client:
        await client.subscribe(uri.queue, selector="JMSXGroupID = 'order: 1'")
        frame = await client.next()

    assert frame.body == b"grouped"
    assert frame.headers["PenstockGroup"] == "order: 1"
    assert frame.headers["PenstockDedupId"] == "the id"
    assert frame.headers["persistent"] == "true"


async def test_a_scheduled_send_in_a_transaction_is_scheduled_by_the_commit_only(activemq: ActiveMQ) -> None:
    queue = new_queue(activemq).queue
    async with client_of(activemq) as client:
        await client.subscribe(queue)
        for transaction, end in (("1", "ABORT"), ("2", "COMMIT")):
            client.connection.send("BEGIN", {"transaction": transaction})
            await client.send(queue, end.encode(), transaction=transaction, AMQ_SCHEDULED_DELAY="10")
        await client.send(queue, b"sentinel", AMQ_SCHEDULED_DELAY="1000")
        assert (await client.next()).body == b"sentinel"
        for transaction, end in (("1", "ABORT"), ("2", "COMMIT")):
            await client.connection.request(end, {"transaction": transaction})
        await client.send(queue, b"last", AMQ_SCHEDULED_DELAY="1000")
        came = [(await client.next()).body for _ in range(2)]

    assert came == [b"COMMIT", b"last"]


async def test_the_broker_ends_a_connection_that_acks_what_it_does_not_hold(activemq: ActiveMQ) -> None:
    async with client_of(activemq) as client:
        with pytest.raises(FailedPrecondition, match="Unexpected ACK"):
            await client.connection.request("ACK", {"id": "never delivered"})
        assert client.connection.is_lost


# Giving back


async def test_a_delayed_message_without_a_group_waits_at_the_broker_under_the_same_id(activemq: ActiveMQ) -> None:
    uri = new_queue(activemq)
    await publish(uri, *publications("again", group=None))
    async with consuming(uri) as source:
        (first,) = await take(source, 1)
        await source.nack(first, 1)
    async with client_of(activemq) as client:
        await client.subscribe(uri.queue)
        resent = await client.next()
    async with consuming(uri) as source:
        (second,) = await take(source, 1, ack=True)

    assert resent.headers["message-id"] != first.broker_id
    assert "scheduledJobId" in resent.headers
    assert second.broker_id == first.broker_id


async def test_a_re_sent_message_survives_the_broker_s_kill_right_after_the_nack(activemq: ActiveMQ) -> None:
    uri = new_queue(activemq)
    await publish(uri, *publications(*map(str, range(20)), group=None))
    async with consuming(uri) as source:
        held = await take(source, 20)
        await asyncio.gather(*(source.nack(message, 3) for message in held))
        activemq.kill()
        activemq.start()
        again = await take_when_back(source, 20)
        await asyncio.gather(*map(source.ack, again))

    assert {message.broker_id for message in again} == {message.broker_id for message in held}


async def test_the_twin_that_a_crash_between_re_send_and_ack_leaves_is_handed_out_once(activemq: ActiveMQ) -> None:
    uri = new_queue(activemq)
    await publish(uri, *publications("original", group=None))
    async with consuming(uri) as source:
        (original,) = await take(source, 1)
        async with client_of(activemq) as client:
            await client.send(uri.queue, b"twin", PenstockOriginalId=original.broker_id)
            await client.send(uri.queue, b"sentinel")
        assert bodies(await take(source, 1)) == ["sentinel"]
        await source.ack(original)
        await publish(uri, *publications("end"))
        assert await take_until(source, "end") == ["end"]


async def test_a_broker_without_a_scheduler_does_not_make_a_delayed_message_spin(tmp_path: Path) -> None:
    with running_activemq(tmp_path / "activemq", scheduler=False) as broker:
        uri = new_queue(broker)
        await publish(uri, *publications("again", group=None))
        async with consuming(uri) as source:
            (first,) = await take(source, 1)
            nacked_s = asyncio.get_running_loop().time()
            await source.nack(first, 1)
            (second,) = await take(source, 1, ack=True)

    assert second.broker_id == first.broker_id
    assert asyncio.get_running_loop().time() - nacked_s >= 0.9


# Restarts


async def test_a_source_that_could_not_be_opened_does_not_go_on_trying() -> None:
    source = ActiveMqSource("orders", StompUri("127.0.0.1", free_port(), "orders"))

    with pytest.raises(Unavailable):
        await source.open()

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_after_a_restart_of_the_broker_late_acks_hold_and_the_rest_comes_in_order(activemq: ActiveMQ) -> None:
    uri = new_queue(activemq)
    await publish(uri, *numbered(10, "a", "b"))
    async with consuming(uri) as source:
        held = await source.receive()
        activemq.kill()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(source.ack(held[-1]), PATIENCE_S)
        activemq.start()
        delivered = held[0]
        await _ack_late(source, delivered)
        said: list[str] = []
        while len(said) < 19:
            some = await take_when_back(source, 1)
            said += bodies(some)
            await asyncio.gather(*map(source.ack, some))

    assert delivered.body.decode() not in said
    for group in "ab":
        expected = [f"{group}-{number}" for number in range(10)]
        assert [text for text in said if text.startswith(group)] == [
            text for text in expected if text != delivered.body.decode()
        ]


async def _ack_late(source: ActiveMqSource, message: Received) -> None:
    """Ack a message of the lost connection as soon as the broker is back."""
    async with asyncio.timeout(2 * PATIENCE_S):
        while True:
            try:
                return await source.ack(message)
            except Unavailable:
                await asyncio.sleep(0.01)


async def test_what_waits_out_a_delay_with_its_group_comes_at_once_after_a_crash(activemq: ActiveMQ) -> None:
    uri = new_queue(activemq)
    await publish(uri, *numbered(3, "g"))
    async with consuming(uri) as source:
        held = await take(source, 3)
        await asyncio.gather(*(source.nack(message, 600) for message in held))
    async with consuming(uri) as source:
        assert bodies(await take(source, 3, ack=True)) == ["g-0", "g-1", "g-2"]


async def test_a_message_that_waits_does_not_keep_other_groups_waiting(activemq: ActiveMQ) -> None:
    uri = new_queue(activemq)
    await publish(
        uri, *(Publication(b"%d" % n, "blocked", None) for n in range(150)), *publications("other", group="h")
    )
    async with consuming(uri) as source, asyncio.timeout(PATIENCE_S):
        others: list[Received] = []
        while not others:
            held = await source.receive()
            others = [message for message in held if message.group == "h"]
            await asyncio.gather(*(source.nack(message, 600) for message in held if message.group != "h"))

    assert bodies(others) == ["other"]
