"""A server killed while clients send, receive and delete: what it acknowledged stays true after the restart."""

import random
import threading
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from tests.rigs.penstock_process import wait_until
from tests.services.sqs_server import SqsServer, counts, drain, receive, running

ROUNDS = 2
SENDERS, RECEIVERS = 3, 2
GROUPS_PER_SENDER = 3


class Story:
    """What clients asked for and what they were answered."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: dict[str, str] = {}
        """Body → message id of every acknowledged send."""
        self.unsure: list[str] = []
        """Sends without an answer."""
        self.deleting: set[str] = set()
        self.deleted: set[str] = set()
        self.stop = threading.Event()

    def send(self, client: Any, url: str, body: str) -> None:
        group = body.rpartition(":")[0]
        try:
            answer = client.send_message(
                QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=body
            )
        except (BotoCoreError, ClientError):
            with self.lock:
                self.unsure.append(body)
            raise
        with self.lock:
            self.sent[body] = answer["MessageId"]


def send_until_killed(story: Story, client: Any, url: str, name: str) -> None:
    number = 0
    while not story.stop.is_set():
        try:
            story.send(client, url, f"{name}-{number % GROUPS_PER_SENDER}:{number:06}")
        except (BotoCoreError, ClientError):
            return
        number += 1


def receive_until_killed(story: Story, client: Any, url: str) -> None:
    while not story.stop.is_set():
        try:
            for message in receive(client, url, 3, WaitTimeSeconds=1):
                with story.lock:
                    story.deleting.add(message["Body"])
                client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                with story.lock:
                    story.deleted.add(message["Body"])
        except (BotoCoreError, ClientError):
            return


def work_and_kill(server: SqsServer, story: Story, url: str, number: int, sends: int) -> None:
    client = server.anyone
    story.stop.clear()
    with ThreadPoolExecutor(SENDERS + RECEIVERS) as threads:
        futures: list[Future[None]] = [
            threads.submit(send_until_killed, story, client, url, f"r{number}s{sender}") for sender in range(SENDERS)
        ]
        futures += [threads.submit(receive_until_killed, story, client, url) for _ in range(RECEIVERS)]
        before = len(story.sent)
        wait_until(lambda: len(story.sent) >= before + sends, within_s=60)
        server.kill()
        story.stop.set()
        for future in futures:
            future.result(60)


def all_messages(server: SqsServer) -> list[str]:
    """The bodies of everything in the queue, in the order of each partition; nothing is changed."""
    found: list[str] = []
    cursor: str | None = "0.0"
    while cursor is not None:
        page = server.http("GET", f"/admin/queues/kill.fifo/messages?limit=100&cursor={cursor}").json
        found += [message["body"] for message in page["messages"]]
        cursor = page["cursor"]
    return found


def check(story: Story, present: list[str]) -> None:
    assert len(present) == len(set(present)), "a message is there twice"
    found = set(present)
    assert set(story.sent) - story.deleting <= found, "an acknowledged message is lost"
    assert not found & story.deleted, "a deleted message is back"
    assert found <= set(story.sent) | set(story.unsure), "a message nobody sent"
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for body in present:
        groups[body.rpartition(":")[0]].append(body)
    for bodies in groups.values():
        assert bodies == sorted(bodies), "a group is out of order"


def test_killed_while_clients_work(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # shown when the test fails
    chance = random.Random(seed)
    story = Story()
    with running(tmp_path, "--data", str(tmp_path / "data")) as server:
        client = server.anyone
        attributes = {"FifoQueue": "true", "PartitionCount": "4", "VisibilityTimeout": "600"}
        url = client.create_queue(QueueName="kill.fifo", Attributes=attributes)["QueueUrl"]
        for number in range(ROUNDS):
            work_and_kill(server, story, url, number, 50 + chance.randrange(250))
            server.start()
            check(story, all_messages(server))
            retry(story, client, url)
            present = all_messages(server)
            check(story, present)
            assert sum(counts(client, url)) == len(present)
        drained = [message["Body"] for message in drain(client, url, len(present))]
        assert sorted(drained) == sorted(present)
        check(story, drained)
        assert counts(client, url) == (0, 0, 0)
    assert story.deleted, "the rounds were too short to delete anything"


def retry(story: Story, client: Any, url: str) -> None:
    """Send again what was not answered, and some of what was: the deduplication id makes it one message."""
    before = set(story.deleted)
    unsure, story.unsure = story.unsure, []
    for body in unsure:
        story.send(client, url, body)
    for body in [body for body in story.sent if body in before][-5:] + list(story.sent)[-5:]:
        known = story.sent[body]
        story.send(client, url, body)
        assert story.sent[body] == known


def test_messages_in_flight_stay_hidden_after_a_kill_in_a_queue_that_keeps_its_leases(tmp_path: Path) -> None:
    with running(tmp_path, "--data", str(tmp_path / "data")) as server:
        client = server.anyone
        attributes = {"FifoQueue": "true", "DurableLeases": "true", "VisibilityTimeout": "600"}
        kept = client.create_queue(QueueName="kept.fifo", Attributes=attributes)["QueueUrl"]
        shown = client.get_queue_attributes(QueueUrl=kept, AttributeNames=["All"])["Attributes"]
        assert shown["DurableLeases"] == "true"
        forgotten = client.create_queue(QueueName="forgotten", Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
        assert "DurableLeases" not in client.get_queue_attributes(QueueUrl=forgotten, AttributeNames=["All"])
        for number in range(4):
            group = {"MessageGroupId": f"g{number % 2}", "MessageDeduplicationId": str(number)}
            client.send_message(QueueUrl=kept, MessageBody=str(number), **group)
        client.send_message(QueueUrl=forgotten, MessageBody="x")
        (held,) = receive(client, kept, 1)
        assert len(receive(client, forgotten)) == 1
        server.kill()
        server.start()
        assert len(receive(client, forgotten)) == 1
        # The other group alone: a message of this one is in flight.
        assert [message["Body"] for message in receive(client, kept)] == ["1", "3"]
        assert receive(client, kept) == []
        client.delete_message(QueueUrl=kept, ReceiptHandle=held["ReceiptHandle"])
        (behind,) = receive(client, kept)
        assert (held["Body"], behind["Body"]) == ("0", "2")


def test_changes_of_visibility_survive_a_kill_in_a_queue_that_keeps_its_leases(tmp_path: Path) -> None:
    with running(tmp_path, "--data", str(tmp_path / "data")) as server:
        client = server.anyone
        attributes = {"DurableLeases": "true", "VisibilityTimeout": "600"}
        url = client.create_queue(QueueName="kept", Attributes=attributes)["QueueUrl"]
        names = ("held", "extended", "released", "hidden", "deleted")
        for name in names:
            client.send_message(QueueUrl=url, MessageBody=name)
        handles = {message["Body"]: message["ReceiptHandle"] for message in receive(client, url)}
        for name, timeout_s in (("extended", 900), ("released", 0), ("hidden", 0), ("hidden", 600)):
            client.change_message_visibility(
                QueueUrl=url, ReceiptHandle=handles[name], VisibilityTimeout=timeout_s
            )  # "hidden" waits again when its second change comes
        client.delete_message(QueueUrl=url, ReceiptHandle=handles["deleted"])
        server.kill()
        server.start()
        assert counts(client, url) == (1, 3, 0)
        (released,) = receive(client, url)
        assert (released["Body"], released["Attributes"]["ApproximateReceiveCount"]) == ("released", "2")
        for name in names:
            client.delete_message(QueueUrl=url, ReceiptHandle=handles[name])
        assert counts(client, url) == (0, 0, 0)
