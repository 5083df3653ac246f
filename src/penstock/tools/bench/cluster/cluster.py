"""Measures SQS on several nodes: rates, the cost of passing a request on, and how long a take-over takes."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from penstock.tools.bench.cluster.load import ClusterRates, QueueLoad
from penstock.tools.bench.cluster.nodes import bench_nodes
from penstock.tools.bench.cluster.take_over import TTL_S, take_overs
from penstock.tools.bench.end_to_end.postgres import PostgresCounts
from penstock.tools.bench.servers import new_database, postgres_server
from penstock.tools.bench.sqs import LoadClient, load_client

# As the queues that events go through.
_FIFO = {
    "FifoQueue": "true",
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}
_SPLIT = {**_FIFO, "PartitionCount": "2"}


class ClusterFigures(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The figures of `penstock bench cluster`: FIFO queues with 1,000 groups; the load goes to all nodes alike."""

    send_per_s_1_node: float | None = None
    send_per_s_2_nodes: float | None = None
    send_per_s_3_nodes: float | None = None
    receive_delete_per_s_1_node: float | None = None
    """In batches of ten."""
    receive_delete_per_s_2_nodes: float | None = None
    receive_delete_per_s_3_nodes: float | None = None
    send_per_s_1_database: float | None = None
    """A queue of two partitions, both in one database."""
    send_per_s_2_databases: float | None = None
    receive_delete_per_s_1_database: float | None = None
    receive_delete_per_s_2_databases: float | None = None
    send_us: float | None = None
    """Processor time of a message sent to the owner."""
    forwarded_send_us: float | None = None
    """Of one sent to another node, of both nodes together."""
    forward_ratio: float | None = None
    """`forwarded_send_us` over `send_us`."""
    batched_send_us: float | None = None
    """Processor time of one of ten messages sent in a request, on one node."""
    receive_delete_us: float | None = None
    """Of one of ten received and deleted together."""
    wal_bytes: float | None = None
    """Log of the database for a message of 256 bytes, sent, received and deleted in batches of ten."""
    cpu_ratio_3_nodes: float | None = None
    """Processor time of a message sent, received and deleted in batches of ten on three nodes over one."""
    cpu_ratio_3_nodes_single: float | None = None
    """The same for a message that is sent alone."""
    takeover_kill_s: float | None = None
    """From kill -9 of the owner to the first answer of another node."""
    takeover_stop_s: float | None = None
    """The same after SIGTERM."""
    ttl_s: float | None = None
    """The lease of the owner in these two."""
    lost: int | None = None
    """Acknowledged messages that did not arrive after these take-overs."""
    doubled: int | None = None
    """Messages that were handed out again although their lease had not ended."""


class ClusterBench:
    """One run; `figures` has what is measured so far, also when the run is interrupted."""

    def __init__(self, rounds: int, report: Callable[[str], None]) -> None:
        self._rounds = rounds
        self._report = report
        self.figures = ClusterFigures()

    def run(self, database: str | None) -> None:
        """Measure everything, on a PostgreSQL server or on a temporary one."""
        with ExitStack() as stack:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-pg-"))
            server = stack.enter_context(postgres_server(database, place))
            self._take_overs(server)
            client = stack.enter_context(load_client())
            one = self._nodes(client, server, 1)
            self._nodes(client, server, 2)
            three = self._nodes(client, server, 3)
            self.figures.cpu_ratio_3_nodes = three.batched_message_us / one.batched_message_us
            self.figures.cpu_ratio_3_nodes_single = three.message_us / one.message_us
            for count in (1, 2):
                self._databases(client, server, count)

    def _take_overs(self, server: str) -> None:
        self._report("take-overs")
        found, figures = take_overs(server), self.figures
        figures.takeover_kill_s, figures.takeover_stop_s, figures.lost, figures.doubled = found
        figures.ttl_s = TTL_S

    def _nodes(self, client: LoadClient, server: str, count: int) -> ClusterRates:
        self._report(f"sends, receives and deletes on {count} node{'s' * (count > 1)}")
        figures = self.figures
        with new_database(server) as own, bench_nodes(count, own) as nodes, PostgresCounts.connected(own) as counts:
            rates = QueueLoad(client, nodes, "q.fifo", _FIFO, counts).rates(self._rounds)
            if count == 1:
                figures.batched_send_us, figures.receive_delete_us = rates.batch_us, rates.receive_delete_us
                figures.wal_bytes = rates.wal_bytes
            if count == 2:
                self._report("requests that are passed on")
                own_us, passed_us = QueueLoad(client, nodes, "forwarded.fifo", _FIFO).forwarded(self._rounds)
                figures.send_us, figures.forwarded_send_us = own_us, passed_us
                figures.forward_ratio = passed_us / own_us
        self._set_rates(f"{count}_node{'s' * (count > 1)}", rates)
        return rates

    def _databases(self, client: LoadClient, server: str, count: int) -> None:
        self._report(f"a queue of two partitions in {count} database{'s' * (count > 1)}")
        with _partitions(server, count) as (own, options, settings), bench_nodes(1, own, options, settings) as nodes:
            rates = QueueLoad(client, nodes, "wide.fifo", _SPLIT).rates(self._rounds)
        self._set_rates(f"{count}_database{'s' * (count > 1)}", rates)

    def _set_rates(self, of: str, rates: ClusterRates) -> None:
        setattr(self.figures, f"send_per_s_{of}", rates.send_per_s)
        setattr(self.figures, f"receive_delete_per_s_{of}", rates.receive_delete_per_s)


@contextmanager
def _partitions(server: str, count: int) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Create databases, and provide the first, and the options and settings that place two partitions in one or two."""
    with ExitStack() as stack:
        own, first, second = (stack.enter_context(new_database(server)) for _ in range(3))
        places = "wide.fifo:2=a,a" if count == 1 else "wide.fifo:2=a,b"
        yield own, ["--fifo-partition-map", places], {"PENSTOCK_SQS__DATABASES": f"a={first},b={second}"}
