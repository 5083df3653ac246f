"""A node as a whole: it joins the cluster of its database, serves its share, and hands it over when it stops."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec

from penstock.cluster.nodes import Before, Node, NodeMembership, Registry, renewed, taking_part, until_stop
from penstock.delivery import AnyAddress, DeliveryFailed, HttpClient, Undeliverable, head_with, own_part_settings
from penstock.domain.errors import FailedPrecondition
from penstock.domain.ids import TsidFactory
from penstock.domain.limits import MIB
from penstock.edge.clock import Clock, stopwatch
from penstock.engine import Store
from penstock.http.api import CheckResult, Probes
from penstock.http.server import HttpServer, stop_signal
from penstock.ops.telemetry import Metrics
from penstock.sqs.app import SqsApp
from penstock.sqs.auth.credentials import Credentials
from penstock.sqs.nodes.between import ClusterShards
from penstock.sqs.nodes.front import NodeFront
from penstock.sqs.nodes.hop import Hops
from penstock.sqs.nodes.metrics import NodeMetrics
from penstock.sqs.nodes.owners import HOP_S, Owners, ServedQueues
from penstock.sqs.nodes.shards import FIRST, ONLY_SCHEMA, ShardMap, shard_names, suffix_of
from penstock.sqs.queue.placement import PARTITIONED
from penstock.sqs.server import SqsServerSettings, open_service

PART = "sqs"
_GATE_S = 3.0
# Ten messages of 1 MiB each, in the longest JSON encoding.
_MAX_ANSWER_BYTES = 64 * MIB


class SqsNodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which node this is, and of which cluster."""

    name: str
    database: str
    advertise: str | None = None
    """The address at which the other nodes reach this one; None if it is the one it listens on."""
    ttl_s: float = 10.0
    shards: int = 8
    """How many shards the first node creates."""


class _Health(msgspec.Struct):
    capabilities: list[str] = []


class CapabilityGate:
    """Lets a queue with partitions be created in a shard only if every live node can serve it (SQS-NODE-3)."""

    def __init__(self, shard: str, membership: NodeMembership, client: HttpClient) -> None:
        self._shard = shard
        self._membership = membership
        self._client = client

    async def may_create_partitioned(self) -> bool:
        """Ask every live node, and let only such nodes own the shard from now on."""
        nodes = self._membership.view.nodes
        if not nodes or not all(await asyncio.gather(*(self._has(node) for node in nodes))):
            return False
        await self._membership.tell(lambda registry: registry.need(self._shard, PARTITIONED))
        return True

    async def _has(self, node: Node) -> bool:
        try:
            head = head_with(f"{node.address.rstrip('/')}/sqs_health", (("accept", "application/json"),), "GET")
            async with asyncio.timeout(_GATE_S):
                answer = await self._client.send(head, b"")
            return answer.status == 200 and PARTITIONED in msgspec.json.decode(answer.body, type=_Health).capabilities
        except (DeliveryFailed, Undeliverable, TimeoutError, msgspec.DecodeError):
            return False


async def serve_node(
    stores_of: Callable[[str], Mapping[str, Store]],
    node: SqsNodeSettings,
    clock: Clock,
    ids: TsidFactory,
    settings: SqsServerSettings,
    credentials: Credentials | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; then hand the queues over and finish what is in progress.

    `stores_of` returns the stores of a shard, by the suffix of its schemas.
    """
    membership = NodeMembership(node.database, PART, node.ttl_s)
    shards, secret = await _found_or_created(membership, node)
    hops = Hops(secret, membership.clock)
    async with HttpClient(AnyAddress(), own_part_settings(HOP_S, _MAX_ANSWER_BYTES)) as client:
        owners = Owners(membership, client, hops)
        front = NodeFront(settings.service, clock, ids, membership, owners, hops, shards)

        @asynccontextmanager
        async def open_shard(shard: str) -> AsyncIterator[ServedQueues]:
            stores = stores_of(suffix_of(shard))
            gate, others = CapabilityGate(shard, membership, client), ClusterShards(shard, shards, owners)
            try:
                async with open_service(
                    stores, membership.clock, ids, settings, gate, front.metrics, others
                ) as service:
                    yield ServedQueues(service)
            finally:
                # Ends a claim in progress; the service has closed those that were open.
                for store in stores.values():
                    store.close()

        app = SqsApp(front, credentials, stopwatch, _probes(membership, front, owners))
        server = HttpServer(app, settings.host, settings.port, credentials_set=credentials is not None)
        stop = stop_signal(server)
        async with server:
            instance = f"{ids.next_value(clock.now_ms()):x}"
            me = Node(node.name, instance, node.advertise or server.url, settings.service.capabilities)
            async with taking_part(membership, me, open_shard) as keeper:
                owners.instance, owners.keeper = instance, keeper
                following = asyncio.create_task(owners.follow())
                try:
                    server.announce()
                    await until_stop(stop, membership)
                    front.stop_waiting()
                finally:
                    following.cancel()
    if membership.refused is not None:
        raise FailedPrecondition(membership.refused)


async def _found_or_created(membership: NodeMembership, node: SqsNodeSettings) -> tuple[ShardMap, bytes]:
    """Return the shards of the database; queues that a server without nodes has created remain the only shard."""
    secret = await membership.create(shard_names(node.shards), Before(ONLY_SCHEMA, FIRST))
    return ShardMap(await membership.shards()), secret


def require_one_shard(database: str) -> None:
    """Raise FailedPrecondition if the database has several shards, of which a server without nodes would see none."""
    registry = Registry(database, PART)
    try:
        shards = registry.shards()
    finally:
        registry.close()
    if len(shards) > 1:
        raise FailedPrecondition(
            f"the queues of this database are in {len(shards)} shards: start the server as a node, with --node NAME"
        )


def _probes(membership: NodeMembership, front: NodeFront, owners: Owners) -> Probes:
    metrics = Metrics("sqs")
    metrics.register(front.metrics)
    metrics.register(NodeMetrics(owners))

    def writes() -> CheckResult:
        failures = [failure for service in front.metrics.services if (failure := service.last_failure())]
        return CheckResult(not failures, failures[0] if failures else "commits succeed")

    def owned() -> CheckResult:
        view = membership.view
        missing = [shard.name for shard in view.shards if view.owner_of(shard.name) is None]
        return CheckResult(bool(view.shards) and not missing, f"without an owner: {', '.join(missing) or 'none'}")

    checks = {"store": writes, "owners": owned, "membership": lambda: renewed(membership)}
    return Probes(metrics, checks, fatal=lambda: membership.refused)
