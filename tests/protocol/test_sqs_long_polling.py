"""Long polling: receivers that wait, those that hang up, and a server that is told to stop meanwhile."""

import json
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.protocol.conftest import MakeQueue
from tests.rigs.penstock_process import wait_until
from tests.services.sqs_server import SqsServer, bodies, counts, receive, running

Messages = list[dict[str, Any]]
LONG_POLL_S = 20
# Well before the end of a long poll, also on a machine that is busy with something else.
SOON_S = 15


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def waiting(server: SqsServer, url: str) -> int:
    return int(server.http("GET", f"/admin/queues/{url.rpartition('/')[2]}").json["waiting_receivers"])


def begin(
    threads: ThreadPoolExecutor, server: SqsServer, url: str, receivers: int = 1, **parameters: Any
) -> list[Future[Messages]]:
    """Receivers that certainly wait."""
    client = server.anyone
    futures = [
        threads.submit(receive, client, url, **{"WaitTimeSeconds": LONG_POLL_S, **parameters}) for _ in range(receivers)
    ]
    wait_until(lambda: waiting(server, url) == receivers)
    return futures


def test_a_message_reaches_a_waiting_receiver(
    sqs: SqsServer, make_queue: MakeQueue, threads: ThreadPoolExecutor
) -> None:
    url = make_queue(sqs.anyone)
    (future,) = begin(threads, sqs, url)
    sqs.anyone.send_message(QueueUrl=url, MessageBody="at last")
    assert bodies(future.result(SOON_S)) == ["at last"]


def test_several_waiting_receivers_get_one_each(
    sqs: SqsServer, make_queue: MakeQueue, threads: ThreadPoolExecutor
) -> None:
    url = make_queue(sqs.anyone)
    futures = begin(threads, sqs, url, 4, most=1)
    entries = [{"Id": str(number), "MessageBody": str(number)} for number in range(4)]
    sqs.anyone.send_message_batch(QueueUrl=url, Entries=entries)
    assert sorted(body for future in futures for body in bodies(future.result(SOON_S))) == ["0", "1", "2", "3"]


def test_a_waiting_receiver_of_a_partitioned_queue(
    sqs: SqsServer, make_queue: MakeQueue, threads: ThreadPoolExecutor
) -> None:
    url = make_queue(sqs.anyone, fifo=True, PartitionCount=32)
    for group in ("alpha", "gamma", "delta"):
        (future,) = begin(threads, sqs, url)
        sqs.anyone.send_message(QueueUrl=url, MessageBody=group, MessageGroupId=group, MessageDeduplicationId=group)
        assert bodies(future.result(SOON_S)) == [group]


def test_a_delete_lets_the_group_go_on(sqs: SqsServer, make_queue: MakeQueue, threads: ThreadPoolExecutor) -> None:
    url = make_queue(sqs.anyone, fifo=True)
    for body in ("1", "2"):
        sqs.anyone.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=body)
    (first,) = receive(sqs.anyone, url, 1)
    (future,) = begin(threads, sqs, url)
    sqs.anyone.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert bodies(future.result(SOON_S)) == ["2"]


def test_visibility_zero_wakes_a_receiver(sqs: SqsServer, make_queue: MakeQueue, threads: ThreadPoolExecutor) -> None:
    url = make_queue(sqs.anyone)
    sqs.anyone.send_message(QueueUrl=url, MessageBody="back")
    (first,) = receive(sqs.anyone, url)
    (future,) = begin(threads, sqs, url)
    sqs.anyone.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    assert bodies(future.result(SOON_S)) == ["back"]


def test_a_wait_ends_in_time(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone, fifo=True, PartitionCount=32, ReceiveMessageWaitTimeSeconds=1)
    for parameters in ({}, {"WaitTimeSeconds": 1}):
        started_s = monotonic()
        assert receive(memory_sqs.anyone, url, **parameters) == []
        assert monotonic() - started_s >= 0.9


def test_a_receive_that_asks_for_no_wait_has_none(
    memory_sqs: SqsServer, make_queue: MakeQueue, threads: ThreadPoolExecutor
) -> None:
    url = make_queue(memory_sqs.anyone, ReceiveMessageWaitTimeSeconds=LONG_POLL_S)
    (waits,) = begin(threads, memory_sqs, url)
    assert receive(memory_sqs.anyone, url, WaitTimeSeconds=0) == []
    assert not waits.done()
    memory_sqs.anyone.delete_queue(QueueUrl=url)


def raw_receive(url: str) -> bytes:
    """The bytes of a receive that waits."""
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": LONG_POLL_S}).encode()
    head = (
        "POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
        f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def test_who_hung_up_is_given_nothing(sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(sqs.anyone)
    address = urlsplit(sqs.url)
    for _ in range(3):
        with socket.create_connection((address.hostname, address.port)) as sock:
            sock.sendall(raw_receive(url))
            wait_until(lambda: waiting(sqs, url) == 1)
        wait_until(lambda: waiting(sqs, url) == 0)
    sqs.anyone.send_message(QueueUrl=url, MessageBody="for somebody who is there")
    assert counts(sqs.anyone, url) == (1, 0, 0)
    (message,) = receive(sqs.anyone, url)
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


def test_deleting_the_queue_answers_who_waits(
    memory_sqs: SqsServer, make_queue: MakeQueue, threads: ThreadPoolExecutor
) -> None:
    url = make_queue(memory_sqs.anyone)
    (future,) = begin(threads, memory_sqs, url)
    memory_sqs.anyone.delete_queue(QueueUrl=url)
    assert future.result(SOON_S) == []


def test_a_stop_answers_waiting_receivers(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    with running(tmp_path, "--data", str(tmp_path / "data")) as server:
        client = server.anyone
        url = client.create_queue(QueueName="q")["QueueUrl"]
        futures = begin(threads, server, url, 5)
        server.terminate()
        assert [future.result(SOON_S) for future in futures] == [[]] * 5
        assert server.wait() == 0
    assert '"level": "error"' not in server.log()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for a thousand connections at either end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_thousand_waiting_receivers_are_answered_at_a_stop(tmp_path: Path) -> None:
    with running(tmp_path, "--memory") as server, ExitStack() as stack:
        url = server.anyone.create_queue(QueueName="q")["QueueUrl"]
        address = urlsplit(server.url)
        receivers = [
            stack.enter_context(socket.create_connection((address.hostname, address.port))) for _ in range(1000)
        ]
        for sock in receivers:
            sock.sendall(raw_receive(url))
        wait_until(lambda: waiting(server, url) == len(receivers))
        server.terminate()
        for sock in receivers:
            sock.settimeout(SOON_S)
            assert sock.recv(4096).endswith(b"{}")
        assert server.wait() == 0
