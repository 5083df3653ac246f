"""The database fails over to its synchronous standby: nodes reconnect, and nothing acknowledged is lost."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from penstock.testing.receiver import RecordingReceiver
from tests.cluster.rig import ClusterNode, nodes
from tests.cluster.test_whole_nodes import NodeMachine
from tests.rigs.penstock_process import run_penstock, wait_until
from tests.services.postgres_pair import PostgresPair, postgres_pair

GROUPS = 4


@pytest.fixture
def databases(postgres_url: str) -> Iterator[PostgresPair]:
    del postgres_url  # its package creates the user that servers run as
    with postgres_pair() as pair:
        yield pair


@pytest.mark.long
def test_nothing_acknowledged_is_lost_when_the_standby_is_promoted(tmp_path: Path, databases: PostgresPair) -> None:
    with nodes(tmp_path, [databases.url] * 2, shards=2) as pair:
        queues = [f"q{number}.fifo" for number in range(3)]
        attributes = {"FifoQueue": "true", "VisibilityTimeout": "5"}
        for name in queues:
            assert pair[0].ask("CreateQueue", QueueName=name, Attributes=attributes).status == 200
        load = Load(pair, queues)
        load.start()
        wait_until(lambda: all(load.acknowledged[group] >= 5 for group in load.groups))
        before = dict(load.acknowledged)
        databases.fail_over()
        wait_until(lambda: all(load.acknowledged[group] >= before[group] + 5 for group in load.groups), 90)
        load.stop()
        seen = received(pair, queues, load)
        with psycopg.connect(databases.url) as session:
            ((is_standby,),) = session.execute("SELECT pg_is_in_recovery()")
        assert not is_standby
    for group in load.groups:
        numbers = list(dict.fromkeys(seen[group]))
        assert numbers == sorted(numbers), group
        assert set(range(load.acknowledged[group])) <= set(numbers), group


@pytest.mark.long
async def test_events_go_on_when_the_standby_is_promoted(tmp_path: Path, databases: PostgresPair) -> None:
    machine = NodeMachine(tmp_path, "a", databases.url)
    await asyncio.to_thread(machine.start)
    try:
        async with RecordingReceiver() as receiver:
            machine.penstock("subscriptions", "create", "billing", "--pattern", "orders:**", "--target", receiver.url)
            await asyncio.to_thread(machine.publish, 0, 1)
            await receiver.received(2, 60)
            databases.fail_over()
            await asyncio.to_thread(wait_until, lambda: publishes(machine, 2), 90)
            await asyncio.to_thread(wait_until, lambda: publishes(machine, 3), 90)
            requests = await receiver.received(4, 90)
    finally:
        machine.kill()
    numbers = [json.loads(request.body)["data"] for request in requests]
    assert list(dict.fromkeys(numbers)) == [0, 1, 2, 3]


def publishes(machine: NodeMachine, number: int) -> bool:
    """Publish, as a client that tries again with the same id until it is acknowledged."""
    event = ("--key", "order-1", "--data", str(number), "--id", f"event-{number}")
    return run_penstock("publish", "orders:placed", *event, "--endpoint", machine.url).returncode == 0


class Load:
    """Sends to every queue through both nodes; a message that was not acknowledged is sent again."""

    def __init__(self, pair: list[ClusterNode], queues: list[str]) -> None:
        self.groups = [f"{queue} {number}" for queue in queues for number in range(GROUPS)]
        self.acknowledged: Counter[str] = Counter()
        self._pair = pair
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(group,)) for group in self.groups]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _send(self, group: str) -> None:
        queue = group.partition(" ")[0]
        for number in count():
            message = {"MessageBody": str(number), "MessageGroupId": group.replace(" ", "-")}
            message["MessageDeduplicationId"] = f"{message['MessageGroupId']}-{number}"
            node = self._pair[number % 2]
            while node.ask("SendMessage", QueueUrl=f"{node.url}/000000000000/{queue}", **message).status != 200:
                if self._stopped.wait(0.1):
                    return
            self.acknowledged[group] += 1
            if self._stopped.wait(0.02):
                return


def received(pair: list[ClusterNode], queues: list[str], load: Load) -> dict[str, list[int]]:
    """Receive and delete until everything that was acknowledged has come."""
    seen: dict[str, list[int]] = {group: [] for group in load.groups}

    def receive(queue: str) -> None:
        node = pair[1]
        url = f"{node.url}/000000000000/{queue}"
        wanted = {"MaxNumberOfMessages": 10, "AttributeNames": ["MessageGroupId"]}
        answer = node.ask("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=1, **wanted)
        assert answer.status == 200, answer
        for message in answer.json.get("Messages", []):
            group = message["Attributes"]["MessageGroupId"]
            seen[group.replace(".fifo-", ".fifo ")].append(int(message["Body"]))
            node.ask("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def all_came() -> bool:
        for queue in queues:
            receive(queue)
        return all(len(set(seen[group])) >= load.acknowledged[group] for group in load.groups)

    wait_until(all_came, 90)
    return seen
