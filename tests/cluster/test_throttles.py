"""The throttle of a queue holds over all nodes, at whichever of them its clients ask."""

import signal
import threading
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest

from tests.cluster.rig import ClusterNode, nodes
from tests.rigs.penstock_process import wait_until

CAPACITY = 10
# A refill this slow gives no token back while a test runs.
SLOW = "0.001"
SENDS = {"ThrottleSendCapacity": str(CAPACITY), "ThrottleSendRefillPerSecond": SLOW}
RECEIVES = {"ThrottleRecvCapacity": str(CAPACITY), "ThrottleRecvRefillPerSecond": SLOW}


@pytest.fixture
def pair(tmp_path: Path, postgres_database: str) -> Iterator[list[ClusterNode]]:
    # With leases of their usual length: an owner that renews too late on a busy machine would have a full bucket again.
    with nodes(tmp_path, [postgres_database] * 2) as started:
        yield started


def granted(asked: list[ClusterNode], action: str, url: str, **parameters: object) -> int:
    """How many requests the nodes in turn grant until each of them refuses one."""
    grants, refused = 0, set()
    for node in cycle(asked):
        answer = node.ask(action, QueueUrl=url, **parameters)
        if answer.status == 200:
            grants += 1
            assert grants <= 2 * CAPACITY, "there is no limit"
        elif answer.status == 400:
            assert "Throttling" in answer.json["__type"]
            refused.add(node.name)
        # Else there is no owner now, and nothing was charged.
        if len(refused) == len(asked):
            break
    return grants


@pytest.mark.long
def test_a_bucket_is_that_of_all_nodes_and_full_after_each_take_over(pair: list[ClusterNode]) -> None:
    first, second = pair
    url = first.anyone.create_queue(QueueName="q", Attributes=SENDS)["QueueUrl"]
    assert granted(pair, "SendMessage", url, MessageBody="x") == CAPACITY
    first.send(signal.SIGSTOP)
    wait_until(serves(second))
    assert granted([second], "SendMessage", url, MessageBody="x") == CAPACITY
    first.send(signal.SIGCONT)
    wait_until(serves(first))
    assert granted(pair, "SendMessage", url, MessageBody="x") == 0
    assert second.stop() == 0
    wait_until(serves(first))
    assert first.owner() == "node-0"
    assert granted([first], "SendMessage", url, MessageBody="x") == CAPACITY


def test_a_receive_that_waits_on_another_node_is_charged_once(pair: list[ClusterNode]) -> None:
    owner, other = pair
    url = owner.anyone.create_queue(QueueName="q", Attributes=RECEIVES)["QueueUrl"]
    statuses: list[int] = []

    def receive() -> None:
        statuses.append(other.ask("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20).status)

    thread = threading.Thread(target=receive)
    thread.start()
    wait_until(lambda: owner.http("GET", "/admin/queues/q").json["waiting_receivers"] == 1)
    assert owner.ask("SendMessage", QueueUrl=url, MessageBody="x").status == 200
    thread.join(60)
    assert statuses == [200]
    assert granted(pair, "ReceiveMessage", url) == CAPACITY - 1


def serves(node: ClusterNode) -> Callable[[], bool]:
    return lambda: node.ask("GetQueueUrl", QueueName="q").status == 200
