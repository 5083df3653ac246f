"""How long queues are without an owner when theirs ends, and whether messages survive it."""

import time
from typing import NamedTuple

from penstock.domain.errors import PenstockError
from penstock.sqs import (
    BatchResponse,
    DeleteMessageBatchRequest,
    DeleteMessageBatchRequestEntry,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
)
from penstock.tools.bench.cluster.nodes import BenchNode, bench_nodes, wait_until
from penstock.tools.bench.servers import create_queue, new_database

TTL_S = 3.0
_MESSAGES = 300
_QUEUE = "orders.fifo"
_ATTRIBUTES = {"FifoQueue": "true", "VisibilityTimeout": "600"}
_EMPTY_RECEIVES = 20


class TakeOvers(NamedTuple):
    """Seconds until another node answers, and what became of messages."""

    kill_s: float
    stop_s: float
    lost: int
    doubled: int


def take_overs(server: str) -> TakeOvers:
    """Kill the owner, then stop the next one, with messages waiting and in flight."""
    settings = {"PENSTOCK_CLUSTER__TTL_S": str(TTL_S)}
    with new_database(server) as own, bench_nodes(3, own, settings=settings) as nodes:
        url = create_queue(nodes[0].url, _QUEUE, _ATTRIBUTES)
        for number in range(_MESSAGES):
            text = str(number)
            message = SendMessageRequest(url, text, message_group_id=text, message_deduplication_id=text)
            nodes[number % 3].client.call("SendMessage", message, SendMessageResponse)
        seen: list[str] = []
        _receive(nodes[1], url, seen, _MESSAGES // 3)
        kill_s = _take_over(nodes[0], nodes[1:], kill=True)
        _receive(nodes[2], url, seen, 2 * _MESSAGES // 3)
        owner, other = (nodes[1], nodes[2]) if nodes[2].owner() == "node-1" else (nodes[2], nodes[1])
        stop_s = _take_over(owner, [other], kill=False)
        _receive(other, url, seen, _MESSAGES + 1)
    return TakeOvers(kill_s, stop_s, _MESSAGES - len(set(seen)), len(seen) - len(set(seen)))


def _take_over(owner: BenchNode, others: list[BenchNode], *, kill: bool) -> float:
    """End the owner, and return the seconds until another node answers from the queues."""
    began_s = time.perf_counter()
    owner.end(kill=kill)

    def answers() -> bool:
        try:
            others[0].client.queue_url(_QUEUE)
        except PenstockError:
            return False
        return True

    wait_until(lambda: others[0].owner() not in (None, owner.name))
    wait_until(answers)
    return time.perf_counter() - began_s


def _receive(node: BenchNode, url: str, seen: list[str], until: int) -> None:
    """Receive, and delete every second message, until there are enough; the others stay in flight."""
    empty = 0
    while len(seen) < until and empty < (3 if len(set(seen)) == _MESSAGES else _EMPTY_RECEIVES):
        request = ReceiveMessageRequest(url, max_number_of_messages=min(10, until - len(seen)), wait_time_seconds=1)
        messages = node.client.call("ReceiveMessage", request, ReceiveMessageResponse).messages
        empty = 0 if messages else empty + 1
        seen += [message.body for message in messages]
        entries = [DeleteMessageBatchRequestEntry(str(n), each.receipt_handle) for n, each in enumerate(messages[::2])]
        if entries:
            node.client.call("DeleteMessageBatch", DeleteMessageBatchRequest(url, entries), BatchResponse)
