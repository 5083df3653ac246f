"""A Pub/Sub node as a whole: a server for clients, one for other nodes, and the topics while this node owns them."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.cluster.nodes import Node, NodeMembership, renewed, taking_part, until_stop
from penstock.domain.errors import FailedPrecondition
from penstock.domain.ids import TsidFactory
from penstock.edge.clock import Clock
from penstock.edge.own_ports import serve_port
from penstock.engine import Store
from penstock.http.api import CheckResult, Probes
from penstock.http.server import HttpServer, stop_signal
from penstock.ops.telemetry import Metrics
from penstock.pubsub.nodes.front import SHARD, CallSignatures, HopCalls, OwnerCalls, ServedTopics
from penstock.pubsub.server import GRPC_OPTIONS, GrpcServer, PubsubServerSettings, open_services

PART = "pubsub"


class PubsubNodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which node this is, and of which cluster."""

    name: str
    database: str
    port: int = 0
    """Where it listens for the other nodes, whose calls are signed."""
    advertise: str | None = None
    """The host and port at which the other nodes reach this one; None if all are on this machine."""
    ttl_s: float = 10.0


async def serve_pubsub_node(
    open_store: Callable[[], Store],
    node: PubsubNodeSettings,
    clock: Clock,
    ids: TsidFactory,
    settings: PubsubServerSettings,
) -> None:
    """Serve until SIGINT or SIGTERM; then hand the topics over and finish what is in progress."""
    membership = NodeMembership(node.database, PART, node.ttl_s)
    hops = CallSignatures(await membership.create((SHARD,)), membership.clock)
    calls = OwnerCalls(membership, hops, GRPC_OPTIONS)

    @asynccontextmanager
    async def open_shard(_: str) -> AsyncIterator[ServedTopics]:
        store = open_store()
        try:
            async with open_services(store, membership.clock, ids, settings) as services:
                try:
                    yield ServedTopics(services, store.epoch, lambda: store.lost, store.require_owned)
                finally:
                    services.stop_waiting()
        finally:
            # Ends a claim in progress; the services have closed one that was open.
            store.close()

    remote = settings.allow_remote
    probes = HttpServer(_probes(membership, calls), settings.host, settings.probe_port, credentials_set=remote)
    server = GrpcServer([calls], lambda: None, settings.host, settings.port, allow_remote=remote)
    # Open to every machine: it answers signed calls only.
    hop_host = "127.0.0.1" if node.advertise is None else "0.0.0.0"
    hop_server = GrpcServer(
        [HopCalls(calls, hops)], lambda: None, hop_host, node.port, allow_remote=True, between_nodes=True
    )
    stop = stop_signal(probes)
    async with probes, hop_server, server:
        me = Node(node.name, f"{ids.next_value(clock.now_ms()):x}", node.advertise or hop_server.address)
        async with taking_part(membership, me, open_shard) as keeper:
            calls.keeper = keeper
            for port in (probes.port, server.port, hop_server.port):
                serve_port(port)
            print(f"listening on {server.address}", flush=True)
            print(f"probes on {probes.url}", flush=True)
            await until_stop(stop, membership)
    await calls.close()
    if membership.refused is not None:
        raise FailedPrecondition(membership.refused)


class _NodeMetrics(Collector):
    def __init__(self, calls: OwnerCalls) -> None:
        self._calls = calls

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the node, and of the topics if it owns them."""
        served = self._calls.here()
        yield GaugeMetricFamily("pubsub_node_shards", "Shards that this node owns.", value=served is not None)
        yield CounterMetricFamily("pubsub_node_hops", "Calls passed on to other nodes.", value=self._calls.passed_on)
        if served is not None:
            yield from served.services.metrics.collect()


def _probes(membership: NodeMembership, calls: OwnerCalls) -> Probes:
    metrics = Metrics("pubsub")
    metrics.register(_NodeMetrics(calls))

    def writes() -> CheckResult:
        served = calls.here()
        failure = None if served is None else served.services.last_failure
        return CheckResult(failure is None, failure or "commits succeed")

    def owned() -> CheckResult:
        owner = membership.view.owner_of(SHARD)
        return CheckResult(owner is not None, "no node owns the topics" if owner is None else f"owner: {owner.name}")

    checks = {"store": writes, "owners": owned, "membership": lambda: renewed(membership)}
    return Probes(metrics, checks, fatal=lambda: membership.refused)
