"""One life of a node: what `penstock serve sqs --node` runs, on a simulated database and network."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from penstock.cluster.nodes import Node, taking_part
from penstock.delivery import HttpClient
from penstock.domain.ids import TsidFactory
from penstock.http.api import Probes
from penstock.ops.telemetry import Metrics
from penstock.sqs import OWN_DATABASE, ServiceSettings, SqsServerSettings
from penstock.sqs.app import SqsApp
from penstock.sqs.nodes.between import ClusterShards
from penstock.sqs.nodes.front import NodeFront
from penstock.sqs.nodes.hop import Hops
from penstock.sqs.nodes.owners import Owners, ServedQueues
from penstock.sqs.nodes.server import CapabilityGate
from penstock.sqs.nodes.shards import ShardMap
from penstock.sqs.server import open_service
from penstock.testing.simulation.chance import Chance
from penstock.testing.virtual_loop import LoopClock, VirtualProcess
from tests.cluster.simulated.database import (
    DatabaseLink,
    SimulatedDatabase,
    SimulatedMembership,
    SimulatedStore,
    process_link,
)
from tests.cluster.simulated.network import Listener, NodeClient, SimulatedNetwork

SETTINGS = SqsServerSettings(service=ServiceSettings(durable_leases=True))


class NodeLife:
    """A process with the name and the address of a node, from its start to its stop or its crash."""

    def __init__(
        self,
        name: str,
        number: int,
        database: SimulatedDatabase,
        network: SimulatedNetwork,
        clock: LoopClock,
        chance: Chance,
    ) -> None:
        self.name = name
        self.address = f"{name}:9324"
        self.link = DatabaseLink(chance.fork("database"))
        self.process = VirtualProcess()
        self.process.context.run(process_link.set, self.link)
        self.listener = network.servers[self.address] = Listener(self.process)
        self._number = number
        self._database = database
        self._client = cast(HttpClient, NodeClient(network, self.listener))
        self._clock = clock
        self._stop = asyncio.Event()
        self._serving = self.process.run(self._serve())

    def suspend(self) -> None:
        """Get SIGSTOP."""
        self.process.stop()

    def go_on(self) -> None:
        """Get SIGCONT."""
        self.process.go_on()

    async def stop(self) -> None:
        """Get SIGTERM, and end."""
        self._stop.set()
        await self._serving

    async def kill(self) -> None:
        """Crash: have no effect from now on."""
        self.link.crash()
        self.listener.dead = True
        for task in sorted(self.process.tasks, key=_creation_order):
            task.cancel()
        await asyncio.wait([self._serving])

    async def _serve(self) -> None:
        clock, ids = self._clock, TsidFactory(self._number)
        membership = SimulatedMembership(self._database, self.link)
        shards, hops = ShardMap(list(self._database.shards)), Hops(b"secret", membership.clock)
        owners = Owners(membership, self._client, hops)
        front = NodeFront(SETTINGS.service, clock, ids, membership, owners, hops, shards)

        @asynccontextmanager
        async def open_shard(shard: str) -> AsyncIterator[ServedQueues]:
            store = SimulatedStore(self._database, shard, self.link)
            gate, others = CapabilityGate(shard, membership, self._client), ClusterShards(shard, shards, owners)
            try:
                async with open_service(
                    {OWN_DATABASE: store}, membership.clock, ids, SETTINGS, gate, front.metrics, others
                ) as service:
                    yield ServedQueues(service)
            finally:
                store.close()

        instance = f"{ids.next_value(clock.now_ms()):x}"
        me = Node(self.name, instance, f"http://{self.address}", SETTINGS.service.capabilities)
        async with taking_part(membership, me, open_shard) as keeper:
            owners.instance, owners.keeper = instance, keeper
            following = asyncio.create_task(owners.follow())
            try:
                loop = asyncio.get_running_loop()
                self.listener.app = SqsApp(front, None, loop.time, Probes(Metrics("sqs")))
                await self._stop.wait()
                front.stop_waiting()
            finally:
                following.cancel()
        self.listener.app = None


def _creation_order(task: "asyncio.Task[object]") -> tuple[int, str]:
    """Sort tasks by creation, which their names show; the order of a set differs between runs."""
    name = task.get_name()
    return len(name), name
