"""Two servers on one PostgreSQL database: the one that lost it hands out nothing, says so and ends."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.connection_cutter import Cutter
from tests.rigs.penstock_process import wait_until
from tests.services.sqs_server import Answer, SqsServer, drain

MESSAGES = 30


@pytest.fixture
def servers(tmp_path: Path, postgres_database: str) -> Iterator[tuple[SqsServer, SqsServer]]:
    pair = tuple(SqsServer(tmp_path / name, "--database", postgres_database) for name in ("first", "second"))
    try:
        yield pair[0], pair[1]
    finally:
        for server in pair:
            if server.process is not None:
                server.kill()


def ask(server: SqsServer, action: str, **parameters: object) -> Answer:
    headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
    return server.http("POST", "/", json.dumps(parameters), headers)


def test_a_server_that_slept_through_its_lease_serves_nothing_and_ends(servers: tuple[SqsServer, SqsServer]) -> None:
    first, second = servers
    first.start()
    url = first.anyone.create_queue(QueueName="q")["QueueUrl"]
    for number in range(MESSAGES):
        first.anyone.send_message(QueueUrl=url, MessageBody=str(number))
    answers: list[Answer | OSError] = []
    first.send(signal.SIGSTOP)
    # Asked while it sleeps, answered when it wakes: before its own lease is renewed or found to be lost.
    asking = [threading.Thread(target=receive_into, args=(first, url, answers)) for _ in range(8)]
    for thread in asking:
        thread.start()
    second.start()
    first.send(signal.SIGCONT)
    for thread in asking:
        thread.join(60)
    assert len(answers) == len(asking)
    for answer in answers:
        assert isinstance(answer, OSError) or answer.status == 503, answer
    assert first.wait() not in (0, None)
    assert "took over schema" in first.log()
    assert sorted(int(message["Body"]) for message in drain(second.anyone, url, MESSAGES)) == list(range(MESSAGES))
    assert second.stop() == 0


def receive_into(server: SqsServer, url: str, answers: list[Answer | OSError]) -> None:
    try:
        answers.append(ask(server, "ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10))
    except OSError as error:
        answers.append(error)


def test_a_server_that_cannot_renew_its_lease_says_so_and_serves_again_later(
    tmp_path: Path, postgres_database: str
) -> None:
    cutter = Cutter(postgres_database)
    server = SqsServer(tmp_path / "cut", "--database", cutter.url)
    with server:
        client = server.anyone
        queue = client.create_queue(QueueName="q")["QueueUrl"]
        client.send_message(QueueUrl=queue, MessageBody="x")
        cutter.refusing = True
        cutter.cut()
        wait_until(lambda: ask(server, "ListQueues").status == 503, within_s=60)
        for action in ("ReceiveMessage", "GetQueueAttributes", "ListQueues", "PurgeQueue"):
            answer = ask(server, action, QueueUrl=queue)
            assert (answer.status, "could not be renewed" in answer.json["message"]) == (503, True), action
        for path in ("/sqs_health", "/health/ready", "/admin/queues"):
            assert server.http("GET", path).status == 503
        assert server.http("GET", "/health/live").status == 200
        cutter.refusing = False
        wait_until(lambda: ask(server, "ListQueues").status == 200, within_s=60)
        assert [message["Body"] for message in drain(client, queue, 1)] == ["x"]
        assert server.http("GET", "/sqs_health").status == 200
    cutter.close()
