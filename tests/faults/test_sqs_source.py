"""The SQS source and publisher while the server they talk to is killed and started again."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.domain.errors import Unavailable
from penstock.queues.sqs.publisher import SqsPublisher
from penstock.queues.sqs.source import SqsSource
from penstock.queues.uri import SqsUri, parse_uri
from tests.services.sqs_server import SqsServer, counts, running
from tests.sources.receiving import bodies, numbered, take


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SqsServer]:
    with running(tmp_path, "--data", str(tmp_path / "data")) as started:
        yield started


async def test_what_was_done_when_the_server_was_killed_is_deleted_at_sight_afterwards(server: SqsServer) -> None:
    uri = await _new_queue(server)
    publisher, source = SqsPublisher(uri), SqsSource("q", uri, visibility_s=30)
    await asyncio.gather(publisher.open(), source.open())
    assert await publisher.publish(numbered(3, "a", "b")) == [None] * 6
    held = await take(source, 6)

    server.kill()
    with pytest.raises(Unavailable):
        await source.receive()
    await asyncio.to_thread(server.start)

    # The server knows these leases no more, so it calls the handles expired and has the messages to hand out again.
    done, undone = [each for each in held if each.group == "a"], [each for each in held if each.group == "b"]
    await asyncio.gather(*map(source.ack, done), *map(source.nack, undone))
    again = await take(source, 3)
    assert bodies(again) == bodies(undone)
    await asyncio.gather(*map(source.ack, again))
    await asyncio.gather(publisher.close(), source.close())
    assert await asyncio.to_thread(counts, server.anyone, uri.queue_url) == (0, 0, 0)


async def test_a_group_s_messages_go_to_our_server_ten_a_request(server: SqsServer) -> None:
    uri = await _new_queue(server)
    publisher, source = SqsPublisher(uri), SqsSource("q", uri)
    await asyncio.gather(publisher.open(), source.open())
    assert await publisher.publish(numbered(30, "a")) == [None] * 30
    sent = await asyncio.to_thread(server.metrics, "sqs_request_seconds_count", action="SendMessageBatch")
    assert sum(sent.values()) == 3
    assert bodies(await take(source, 30, ack=True)) == [f"a-{number}" for number in range(30)]
    await asyncio.gather(publisher.close(), source.close())


async def _new_queue(server: SqsServer) -> SqsUri:
    made = await asyncio.to_thread(server.anyone.create_queue, QueueName="q.fifo", Attributes={"FifoQueue": "true"})
    uri = parse_uri(made["QueueUrl"])
    assert isinstance(uri, SqsUri)
    return uri
