"""Rates and costs of a queue under load: what a message takes on its nodes and in the log of their database."""

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from penstock.tools.bench.cluster.nodes import BenchNode, cpu_s
from penstock.tools.bench.end_to_end.postgres import PostgresCounts
from penstock.tools.bench.servers import create_queue
from penstock.tools.bench.sqs import LoadClient
from penstock.tools.bench.sqs_load import SqsLoadRequest

_UNLIMITED = 10**9
_BATCH = 10
_GROUPS = 1_000
_SEND_S, _FILL_S, _RECEIVE_S, _FORWARD_S = 2.0, 1.0, 2.0, 1.0
_TURNS = 4
_US = 1e6


class ClusterRates(msgspec.Struct, frozen=True):
    """Messages per second, and the processor time of all nodes for one of them."""

    send_per_s: float
    receive_delete_per_s: float
    send_us: float
    batch_us: float
    """Of ten messages sent in one request, for each of them."""
    receive_delete_us: float
    """The same for ten received and deleted."""
    wal_bytes: float
    """Written to the log to send, receive and delete a message in batches; 0 for more than one database."""

    @property
    def message_us(self) -> float:
        """A message sent alone, and received and deleted with nine others."""
        return self.send_us + self.receive_delete_us

    @property
    def batched_message_us(self) -> float:
        """A message that is always with nine others."""
        return self.batch_us + self.receive_delete_us


class QueueLoad:
    """Load on one queue, spread over all nodes alike."""

    def __init__(
        self,
        client: LoadClient,
        nodes: Sequence[BenchNode],
        name: str,
        attributes: Mapping[str, str],
        counts: PostgresCounts | None = None,
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._counts = counts
        first, *others = [node.port for node in nodes]
        self._request = SqsLoadRequest(
            work="",
            port=first,
            more_ports=others,
            queue_url=create_queue(nodes[0].url, name, dict(attributes)),
            operations=_UNLIMITED,
            groups=_GROUPS,
        )

    def rates(self, rounds: int) -> ClusterRates:
        """Return the medians."""
        measured = [self._round() for _ in range(rounds)]
        return ClusterRates(*map(statistics.median, zip(*map(msgspec.structs.astuple, measured), strict=True)))

    def _round(self) -> ClusterRates:
        send_per_s, send_us, _ = self._run("send", _SEND_S)
        self._drain()
        _, batch_us, sent_bytes = self._run("send_batch", _FILL_S)
        receive_per_s, receive_us, received_bytes = self._run("receive_delete", _RECEIVE_S)
        self._drain()
        return ClusterRates(send_per_s, receive_per_s, send_us, batch_us, receive_us, sent_bytes + received_bytes)

    def _drain(self) -> None:
        """Begin each measurement with an empty queue, as the cost of a message depends on how many wait."""
        self._run("receive_delete", 4 * _RECEIVE_S)

    def _run(self, work: str, seconds: float) -> tuple[float, float, float]:
        """Return messages per second, and the microseconds and bytes of log of one of them."""
        written = self._counts.written() if self._counts else None
        before_s = cpu_s(self._nodes)
        outcome = self._client.run(msgspec.structs.replace(self._request, work=work, seconds=seconds))
        spent_s, messages = cpu_s(self._nodes) - before_s, max(1, outcome.messages)
        _, log_bytes, _ = self._counts.written().per(written, messages) if self._counts and written else (0, 0.0, 0)
        return outcome.messages / outcome.seconds, spent_s * _US / messages, log_bytes

    def forwarded(self, rounds: int) -> tuple[float, float]:
        """Return the microseconds of a send to the owner, the first node, and of one that is passed on to it."""
        own: list[float] = []
        passed: list[float] = []
        for turn in range(rounds * _TURNS):
            for node in sorted(self._nodes, key=self._nodes.index, reverse=bool(turn % 2)):
                before_s = cpu_s(self._nodes)
                request = msgspec.structs.replace(
                    self._request, work="send", seconds=_FORWARD_S, port=node.port, more_ports=[]
                )
                messages = self._client.run(request).messages
                (own if node is self._nodes[0] else passed).append((cpu_s(self._nodes) - before_s) * _US / messages)
        return statistics.median(own), statistics.median(passed)
