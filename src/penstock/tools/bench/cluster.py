"""Measures SQS on several nodes: rates, the cost of passing a request on, and how long a take-over takes."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from urllib.request import urlopen

import msgspec

from penstock.client.types import ClusterView
from penstock.domain.errors import PenstockError
from penstock.edge.clock import SystemClock
from penstock.sqs import (
    BatchResponse,
    DeleteMessageBatchRequest,
    DeleteMessageBatchRequestEntry,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
)
from penstock.sqs.client import BlockingSqsClient, SqsEndpoint
from penstock.tools.bench.end_to_end.processor_time import usage
from penstock.tools.bench.servers import create_queue, listening_address, new_database, port_of, postgres_server
from penstock.tools.bench.sqs import LoadClient, load_client
from penstock.tools.bench.sqs_load import SqsLoadRequest

_TTL_S = 3.0
# One queue is measured, so that what is passed on and what is not is known.
_ONE_SHARD = {"PENSTOCK_CLUSTER__SHARDS": "1"}
_SENDS, _RECEIVES = 6_000, 1_500
_FIFO = {"FifoQueue": "true"}
_GROUPED = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
_SPLIT = {**_FIFO, **_GROUPED, "PartitionCount": "2"}
_MESSAGES = 300


class ClusterFigures(msgspec.Struct, kw_only=True):
    """The figures of `penstock bench cluster`; the load goes to all nodes alike."""

    send_per_s_1_node: float
    send_per_s_2_nodes: float
    send_per_s_3_nodes: float
    receive_delete_per_s_1_node: float
    receive_delete_per_s_2_nodes: float
    receive_delete_per_s_3_nodes: float
    send_per_s_1_database: float
    """A queue of two partitions, both in one database."""
    send_per_s_2_databases: float
    receive_delete_per_s_1_database: float
    receive_delete_per_s_2_databases: float
    forward_ratio: float
    """Processor time of a send that is passed on over that of one to the owner, of all nodes together."""
    cpu_ratio_3_nodes: float
    """Processor time of a message sent, received and deleted on three nodes over one."""
    takeover_kill_s: float
    """From kill -9 of the owner to the first answer of another node."""
    takeover_stop_s: float
    """The same after SIGTERM."""
    ttl_s: float
    lost: int
    """Acknowledged messages that did not arrive after these take-overs."""
    doubled: int
    """Messages that were handed out again although their lease had not ended."""


class BenchNode:
    """One node, in a process of its own."""

    def __init__(self, name: str, database: str, *options: str, settings: Mapping[str, str] | None = None) -> None:
        command = (sys.executable, "-m", "penstock", "--log-level", "error", "serve", "sqs", "--port", "0")
        self.name = name
        self.process = subprocess.Popen(
            [*command, "--database", database, "--node", name, *options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **_ONE_SHARD, "PENSTOCK_CLUSTER__TTL_S": str(_TTL_S), **(settings or {})},
        )
        assert self.process.stdout is not None
        self.url = listening_address(iter(self.process.stdout))
        self.client = BlockingSqsClient(SqsEndpoint.parse(self.url), SystemClock())

    @property
    def port(self) -> int:
        """Where it listens."""
        return port_of(self.url)

    def owner(self) -> str | None:
        """Return the name of the node that owns the queues, as this one sees it."""
        with urlopen(f"{self.url}/cluster") as answer:
            view = msgspec.json.decode(answer.read(), type=ClusterView)
        return next((shard.owner for shard in view.shards if shard.part == "sqs"), None)

    def end(self, *, kill: bool) -> None:
        """End the process."""
        (self.process.kill if kill else self.process.terminate)()

    def close(self) -> None:
        """End the process if it runs, and wait for it."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def _nodes(
    count: int, database: str, *options: str, settings: Mapping[str, str] | None = None
) -> Iterator[list[BenchNode]]:
    """Start nodes; the first one owns the queues."""
    with ExitStack() as stack:
        nodes: list[BenchNode] = []
        for number in range(count):
            nodes.append(BenchNode(f"node-{number}", database, *options, settings=settings))
            stack.callback(nodes[-1].close)
            _until(lambda: nodes[0].owner() == "node-0")
        yield nodes


def bench_cluster(rounds: int, database: str | None, report: Callable[[str], None]) -> ClusterFigures:
    """Measure everything; `report` is called with each step."""
    with tempfile.TemporaryDirectory(prefix="penstock-pg-") as place, postgres_server(database, place) as server:
        with load_client() as client:
            rates, forward_ratio = {}, 0.0
            for count in (1, 2, 3):
                report(f"sends, receives and deletes on {count} nodes")
                with new_database(server) as own, _nodes(count, own) as nodes:
                    rates[count] = _rates(client, nodes, rounds)
                    if count == 2:
                        report("requests that are passed on")
                        forward_ratio = _forward_ratio(client, nodes, rounds)
            databases = {}
            for count in (1, 2):
                report(f"a queue of two partitions in {count} databases")
                databases[count] = _with_databases(client, server, count, rounds)
        report("take-overs")
        kill_s, stop_s, lost, doubled = _take_overs(server)
    return ClusterFigures(
        send_per_s_1_node=rates[1].send,
        send_per_s_2_nodes=rates[2].send,
        send_per_s_3_nodes=rates[3].send,
        receive_delete_per_s_1_node=rates[1].receive,
        receive_delete_per_s_2_nodes=rates[2].receive,
        receive_delete_per_s_3_nodes=rates[3].receive,
        send_per_s_1_database=databases[1].send,
        send_per_s_2_databases=databases[2].send,
        receive_delete_per_s_1_database=databases[1].receive,
        receive_delete_per_s_2_databases=databases[2].receive,
        forward_ratio=forward_ratio,
        cpu_ratio_3_nodes=rates[3].cpu_s / rates[1].cpu_s,
        takeover_kill_s=kill_s,
        takeover_stop_s=stop_s,
        ttl_s=_TTL_S,
        lost=lost,
        doubled=doubled,
    )


class ClusterRates(msgspec.Struct, frozen=True):
    """Messages per second, and the processor seconds of the nodes for one of them."""

    send: float
    receive: float
    cpu_s: float


def _rates(
    client: LoadClient,
    nodes: list[BenchNode],
    rounds: int,
    attributes: Mapping[str, str] | None = None,
    name: str = "q",
) -> ClusterRates:
    url = create_queue(nodes[0].url, name, dict(attributes or {}))
    groups = 1000 if attributes else 0
    ports = [node.port for node in nodes]
    send = SqsLoadRequest(
        work="send", port=ports[0], more_ports=ports[1:], queue_url=url, operations=_SENDS, groups=groups
    )
    receive = msgspec.structs.replace(send, work="receive_delete", operations=_RECEIVES)
    sends, receives, costs = [], [], []
    for _ in range(rounds):
        before_s = _cpu_s(nodes)
        sends.append(client.rate(send))
        receives.append(client.rate(receive))
        costs.append((_cpu_s(nodes) - before_s) / _SENDS)
    return ClusterRates(*map(statistics.median, (sends, receives, costs)))


def _forward_ratio(client: LoadClient, nodes: list[BenchNode], rounds: int) -> float:
    url = create_queue(nodes[0].url, "forwarded", {})
    ratios = []
    for _ in range(rounds):
        costs = []
        for node in nodes:
            before_s = _cpu_s(nodes)
            client.run(SqsLoadRequest(work="send", port=node.port, queue_url=url, operations=_SENDS))
            costs.append(_cpu_s(nodes) - before_s)
        ratios.append(costs[1] / costs[0])
    return statistics.median(ratios)


def _with_databases(client: LoadClient, server: str, count: int, rounds: int) -> ClusterRates:
    with ExitStack() as stack:
        own, first, second = (stack.enter_context(new_database(server)) for _ in range(3))
        settings = {"PENSTOCK_SQS__DATABASES": f"a={first},b={second}"}
        places = "wide.fifo:2=a,a" if count == 1 else "wide.fifo:2=a,b"
        nodes = stack.enter_context(_nodes(1, own, "--fifo-partition-map", places, settings=settings))
        return _rates(client, nodes, rounds, _SPLIT, "wide.fifo")


def _take_overs(server: str) -> tuple[float, float, int, int]:
    """Kill the owner, then stop the next one, with messages waiting and in flight."""
    with new_database(server) as own, _nodes(3, own) as nodes:
        url = create_queue(nodes[0].url, "orders.fifo", {**_FIFO, "VisibilityTimeout": "600"})
        for number in range(_MESSAGES):
            message = SendMessageRequest(
                url, str(number), message_group_id=str(number), message_deduplication_id=str(number)
            )
            nodes[number % 3].client.call("SendMessage", message, SendMessageResponse)
        seen: list[str] = []
        _receive(nodes[1], url, seen, _MESSAGES // 3)
        kill_s = _take_over(nodes[0], nodes[1:], kill=True)
        _receive(nodes[2], url, seen, 2 * _MESSAGES // 3)
        owner, other = (nodes[1], nodes[2]) if nodes[2].owner() == "node-1" else (nodes[2], nodes[1])
        stop_s = _take_over(owner, [other], kill=False)
        _receive(other, url, seen, _MESSAGES)
    return kill_s, stop_s, _MESSAGES - len(set(seen)), len(seen) - len(set(seen))


def _take_over(owner: BenchNode, others: list[BenchNode], *, kill: bool) -> float:
    """End the owner, and return the seconds until another node answers from the queues."""
    began_s = time.perf_counter()
    owner.end(kill=kill)

    def answers() -> bool:
        try:
            others[0].client.queue_url("orders.fifo")
        except PenstockError:
            return False
        return True

    _until(lambda: others[0].owner() not in (None, owner.name))
    _until(answers)
    return time.perf_counter() - began_s


def _receive(node: BenchNode, url: str, seen: list[str], until: int) -> None:
    """Receive, and delete every second message, until there are enough; the others stay in flight."""
    empty = 0
    while len(seen) < until and empty < 20:
        request = ReceiveMessageRequest(url, max_number_of_messages=min(10, until - len(seen)), wait_time_seconds=1)
        messages = node.client.call("ReceiveMessage", request, ReceiveMessageResponse).messages
        empty = 0 if messages else empty + 1
        seen += [message.body for message in messages]
        entries = [DeleteMessageBatchRequestEntry(str(n), each.receipt_handle) for n, each in enumerate(messages[::2])]
        if entries:
            node.client.call("DeleteMessageBatch", DeleteMessageBatchRequest(url, entries), BatchResponse)


def _cpu_s(nodes: list[BenchNode]) -> float:
    return sum(usage({node.process.pid: "node" for node in nodes}).cpu_s.values())


def _until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60
    while not holds():
        if time.monotonic() > until_s:
            raise RuntimeError("the cluster does not come up")
        time.sleep(0.01)
