"""One wait for many queues of our server, and a source that uses it."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.queues.sqs.source import SqsSource
from penstock.queues.sqs.watch import SharedServers
from penstock.queues.uri import SqsUri, parse_uri
from tests.protocol.conftest import MakeQueue
from tests.rigs.penstock_process import wait_until
from tests.services.sqs_server import Answer, SqsServer, receive, running

TARGET = {"X-Amz-Target": "AmazonSQS.PenstockWatchQueues", "Content-Type": "application/x-amz-json-1.0"}
SOON_S = 15


def watch(server: SqsServer, *urls: str, wait_s: int = 20) -> Answer:
    body = json.dumps({"QueueUrls": urls, "WaitTimeSeconds": wait_s})
    return server.http("POST", "/", body, TARGET)


def named(server: SqsServer, *urls: str, wait_s: int = 20) -> list[str]:
    answer = watch(server, *urls, wait_s=wait_s)
    assert answer.status == 200, answer.body
    return [*answer.json.get("QueueUrls", [])]


def waits(server: SqsServer, url: str) -> int:
    return int(server.http("GET", f"/admin/queues/{url.rpartition('/')[2]}").json["waiting_receivers"])


def test_a_queue_with_messages_is_named_at_once(sqs: SqsServer, make_queue: MakeQueue) -> None:
    empty, full = make_queue(sqs.anyone), make_queue(sqs.anyone, fifo=True)
    sqs.anyone.send_message(QueueUrl=full, MessageBody="m", MessageGroupId="g", MessageDeduplicationId="d")
    assert named(sqs, empty, full) == [full]


def test_a_wait_ends_when_a_message_arrives_and_takes_none(sqs: SqsServer, make_queue: MakeQueue) -> None:
    urls = [make_queue(sqs.anyone) for _ in range(3)]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(named, sqs, *urls)
        wait_until(lambda: waits(sqs, urls[1]) == 1)
        sqs.anyone.send_message(QueueUrl=urls[1], MessageBody="m")
        assert waiting.result(SOON_S) == [urls[1]]
    assert len(receive(sqs.anyone, urls[1])) == 1


def test_a_delayed_message_ends_the_wait_when_it_is_due(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    memory_sqs.anyone.send_message(QueueUrl=url, MessageBody="m", DelaySeconds=1)
    assert named(memory_sqs, url) == [url]


def test_a_wait_without_messages_names_none(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    assert named(memory_sqs, make_queue(memory_sqs.anyone), wait_s=1) == []


def test_a_queue_that_cannot_be_received_from_is_named(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    assert named(memory_sqs, url, f"{url}-not-there") == [f"{url}-not-there"]


def test_deleting_a_queue_ends_the_wait(memory_sqs: SqsServer) -> None:
    url = memory_sqs.anyone.create_queue(QueueName="deleted-while-watched")["QueueUrl"]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(named, memory_sqs, url)
        wait_until(lambda: waits(memory_sqs, url) == 1)
        memory_sqs.anyone.delete_queue(QueueUrl=url)
        assert waiting.result(SOON_S) == [url]


def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    with running(tmp_path, "--memory") as server, ThreadPoolExecutor(1) as threads:
        url = server.anyone.create_queue(QueueName="q")["QueueUrl"]
        waiting = threads.submit(named, server, url)
        wait_until(lambda: waits(server, url) == 1)
        server.stop()
        assert waiting.result(SOON_S) == [url]


def test_a_wait_is_signed_where_requests_are(secured_sqs: SqsServer) -> None:
    assert watch(secured_sqs, "http://localhost/000000000000/q", wait_s=0).status == 403


def test_wrong_waits_are_refused(memory_sqs: SqsServer) -> None:
    urls = [f"http://localhost/000000000000/q{number}" for number in range(1001)]
    assert (watch(memory_sqs, *urls).status, watch(memory_sqs, wait_s=21).status) == (400, 400)
    assert memory_sqs.http("POST", "/", "not JSON", TARGET).status == 400


async def test_a_source_receives_what_comes_after_it_was_idle(sqlite_sqs: SqsServer, make_queue: MakeQueue) -> None:
    servers = SharedServers()
    urls = [make_queue(sqlite_sqs.anyone, fifo=True) for _ in range(20)]
    sources = [SqsSource(url, _uri(url), servers=servers) for url in urls]
    polls = [asyncio.create_task(source.receive()) for source in sources]
    send = {"QueueUrl": urls[7], "MessageBody": "m", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    await asyncio.to_thread(lambda: sqlite_sqs.anyone.send_message(**send))
    async with asyncio.timeout(SOON_S):
        [message] = await polls[7]
        await sources[7].ack(message)

    assert message.body == b"m"
    assert [poll.done() for poll in polls].count(True) == 1
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)
    await asyncio.gather(*(source.close() for source in sources))


def _uri(url: str) -> SqsUri:
    parsed = parse_uri(url)
    assert isinstance(parsed, SqsUri)
    return parsed
