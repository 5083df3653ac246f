"""Runs the real router through the faults of a scenario, and checks its invariants.

No message is lost; messages of a group become final in order, within each tier; a router starts a delivery only while
it has the message's lease, and no two of a message or of a group at once; concurrency and rate limits are kept; every
message is settled once; a queue that cannot be opened is unhealthy, with a warning; at the end every permit is free.
"""

import asyncio

from penstock.domain.pointer import DispatchMode, MessagePointer, encode_pointer
from penstock.router import PoolConfiguration, RouterConfiguration
from penstock.testing.simulation.chance import Chance
from penstock.testing.simulation.endpoint import EndpointFaults, SimulatedEndpoint
from penstock.testing.simulation.history import History, InvariantBroken
from penstock.testing.simulation.life import RouterLife
from penstock.testing.simulation.network import SimulatedNetwork
from penstock.testing.simulation.queue import SimulatedQueue
from penstock.testing.simulation.scenario import TROUBLE_S, Scenario, scenario_of
from penstock.testing.virtual_loop import LoopClock, run_virtual

_RECOVERY_S = 12 * 3600
# The health timeout, the pace of the monitor, and some time for slow answers.
_NOTICED_S = 150


def simulate_router(seed: int) -> History:
    """Run the simulation of a seed; raise InvariantBroken if an invariant did not hold."""
    try:
        return run_virtual(lambda clock: RouterWorld(Chance(seed), clock).run())
    except InvariantBroken as broken:
        raise InvariantBroken(f"seed {seed}: {broken}") from broken


class RouterWorld:
    """Lasting queues and endpoints, and routers that come and go: one at a time, or two that share the queues."""

    def __init__(self, chance: Chance, clock: LoopClock) -> None:
        self._chance = chance.fork("world")
        self._clock = clock
        self._starts = 0
        self._scenario: Scenario = scenario_of(chance)
        self._queues = {
            each.name: SimulatedQueue(each.name, clock, each.visibility_s, ordered=each.ordered)
            for each in self._scenario.queues
        }
        self._group_in_body = {each.name for each in self._scenario.queues if each.group_in_body}
        self._endpoints = {
            url: SimulatedEndpoint(faults, chance.fork(url)) for url, faults in self._scenario.endpoints.items()
        }
        self._pointers = {each.pointer.id: each.pointer for each in self._scenario.publications}
        self._network = SimulatedNetwork(self._endpoints, self._pointers)
        self._configuration = self._scenario.configuration()
        self._lives: list[RouterLife] = []
        # Those that consume; the others stand by.
        self._active: set[RouterLife] = set()

    async def run(self) -> History:
        """Publish, inject faults, wait until all is delivered, and check."""
        publishing = asyncio.create_task(self._publish())
        for number in range(self._scenario.routers):
            self._lives.append(await self._start(is_active=not (self._scenario.standby and number)))
        await self._trouble()
        await publishing
        await self._check_health()
        await self._calm_down()
        for life in self._lives:
            await life.stop()
        self._check()
        passed_s = asyncio.get_running_loop().time()
        return History(len(self._pointers), passed_s, tuple(self._network.deliveries))

    async def _publish(self) -> None:
        passed_s = 0.0
        for each in self._scenario.publications:
            await asyncio.sleep(each.at_s - passed_s)
            passed_s = each.at_s
            group = None if each.queue in self._group_in_body else each.pointer.group
            self._queues[each.queue].send(encode_pointer(each.pointer), group)

    async def _start(self, *, is_active: bool) -> RouterLife:
        self._starts += 1
        chance = self._chance.fork(f"life {self._starts}")
        faults = {each.name: each.faults for each in self._scenario.queues}
        life = RouterLife(self._queues, faults, self._network, self._clock, chance)
        if is_active:
            self._active.add(life)
        await life.configure(self._configuration_of(life))
        return life

    def _configuration_of(self, life: RouterLife) -> RouterConfiguration:
        """Return the configuration of a router: one that stands by has no pools and no queues."""
        return self._configuration if life in self._active else RouterConfiguration()

    async def _trouble(self) -> None:
        actions = [
            self._change_limits,
            self._drop_a_pool,
            self._drop_a_queue,
            self._restart,
            self._kill,
            self._suspend,
            self._cut_off,
            self._nothing,
            *([self._change_roles] * 2 if self._scenario.standby else []),
        ]
        while asyncio.get_running_loop().time() < TROUBLE_S:
            await asyncio.sleep(self._chance.between(2.0, 60.0))
            await self._chance.one_of(actions)()

    async def _nothing(self) -> None:
        pass

    async def _change_limits(self) -> None:
        pools = tuple(
            PoolConfiguration(pool.code, self._chance.whole(1, 8), self._chance.one_of([None, 6, 30]))
            for pool in self._scenario.pools
        )
        await self._configure(RouterConfiguration(pools, self._configuration.queues))

    async def _drop_a_pool(self) -> None:
        kept = self._configuration.processing_pools[1:]
        await self._configure(RouterConfiguration(kept, self._configuration.queues))

    async def _drop_a_queue(self) -> None:
        before = self._configuration
        await self._configure(RouterConfiguration(before.processing_pools, before.queues[1:]))
        await asyncio.sleep(self._chance.between(0.0, 40.0))
        await self._configure(before)

    async def _restart(self) -> None:
        life = self._chance.one_of(self._lives)
        await life.stop()
        await asyncio.sleep(self._chance.between(0.0, 30.0))
        await self._replace(life)

    async def _kill(self) -> None:
        life = self._chance.one_of(self._lives)
        life.check_warnings()
        life.kill()
        await asyncio.sleep(self._chance.between(0.1, 30.0))
        await self._replace(life)

    async def _replace(self, life: RouterLife) -> None:
        is_active = life in self._active
        self._active.discard(life)
        self._lives[self._lives.index(life)] = await self._start(is_active=is_active)

    async def _change_roles(self) -> None:
        """Let the router that stands by take over; the other gives everything up first, or a little later."""
        before = self._active
        self._active = set(self._lives) - before
        for life in self._lives if self._chance.happens(0.5) else reversed(self._lives):
            await life.configure(self._configuration_of(life))

    async def _suspend(self) -> None:
        """Stop a router for less or more than the leases of its messages."""
        life = self._chance.one_of(self._lives)
        life.suspend()
        await asyncio.sleep(self._chance.between(1.0, 90.0))
        life.go_on()

    async def _cut_off(self) -> None:
        """Take the queues away from a router that goes on delivering."""
        life = self._chance.one_of(self._lives)
        life.cut_off(is_cut_off=True)
        await asyncio.sleep(self._chance.between(1.0, 150.0))
        life.cut_off(is_cut_off=False)

    async def _configure(self, configuration: RouterConfiguration) -> None:
        self._configuration = configuration
        for life in self._lives:
            await life.configure(self._configuration_of(life))

    async def _check_health(self) -> None:
        """A queue that could never be opened is unhealthy after the health timeout, with a warning."""
        shut = {each.name for each in self._scenario.queues if each.faults.is_shut}
        if not shut:
            return
        await asyncio.sleep(_NOTICED_S)
        for life in sorted(self._active, key=self._lives.index):
            for queue in self._configuration.queues:
                if queue.queue_name in shut and (finding := life.unnoticed(queue.queue_name)):
                    raise InvariantBroken(finding)

    async def _calm_down(self) -> None:
        for queue in self._scenario.queues:
            queue.faults.clear()
        for endpoint in self._endpoints.values():
            endpoint.faults = EndpointFaults()
        await self._configure(self._scenario.configuration())
        for _ in range(_RECOVERY_S):
            if not any(len(queue) for queue in self._queues.values()):
                return
            await asyncio.sleep(1)
        left = {name: len(queue) for name, queue in self._queues.items()}
        raise InvariantBroken(f"messages are still queued {_RECOVERY_S} s after the last fault: {left}")

    def _check(self) -> None:
        if self._network.findings:
            raise InvariantBroken("; ".join(self._network.findings[:5]))
        ordered = {each.name for each in self._scenario.queues if each.ordered}
        published: dict[tuple[str, bool], list[MessagePointer]] = {}
        for each in self._scenario.publications:
            pointer = each.pointer
            if pointer.id not in self._endpoints[pointer.mediation_target].final[pointer.group]:
                raise InvariantBroken(f"message {pointer.id} is lost")
            if each.queue in ordered and pointer.dispatch_mode is DispatchMode.BLOCK_ON_ERROR:
                published.setdefault((pointer.group, pointer.high_priority), []).append(pointer)
        for tier in published.values():
            self._check_order(tier)

    def _check_order(self, published: list[MessagePointer]) -> None:
        ids = [pointer.id for pointer in published]
        final = self._endpoints[published[0].mediation_target].final[published[0].group]
        arrived = [each for each in final if each in ids]
        if arrived != ids:
            raise InvariantBroken(f"group {published[0].group} became final as {arrived}")
