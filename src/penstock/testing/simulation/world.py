"""Runs the real router through the faults of a scenario, and checks its invariants.

No message is lost; messages of a group become final in order, within each tier; no two deliveries of a message or of a
group run at once; concurrency and rate limits are kept; every message is settled once; at the end every permit is free.
"""

import asyncio

from penstock.domain.pointer import DispatchMode, MessagePointer, encode_pointer
from penstock.router import PoolConfiguration, RouterConfiguration
from penstock.testing.simulation.chance import Chance
from penstock.testing.simulation.endpoint import EndpointFaults, SimulatedEndpoint
from penstock.testing.simulation.history import History, InvariantBroken
from penstock.testing.simulation.life import RouterLife
from penstock.testing.simulation.network import PoolLimits, SimulatedNetwork
from penstock.testing.simulation.queue import SimulatedQueue
from penstock.testing.simulation.scenario import TROUBLE_S, Scenario, scenario_of
from penstock.testing.virtual_loop import LoopClock, run_virtual

_RECOVERY_S = 12 * 3600


def simulate_router(seed: int) -> History:
    """Run the simulation of a seed; raise InvariantBroken if an invariant did not hold."""
    try:
        return run_virtual(lambda clock: RouterWorld(Chance(seed), clock).run())
    except InvariantBroken as broken:
        raise InvariantBroken(f"seed {seed}: {broken}") from broken


class RouterWorld:
    """Lasting queues and endpoints, and one router after another."""

    def __init__(self, chance: Chance, clock: LoopClock) -> None:
        self._chance = chance.fork("world")
        self._clock = clock
        self._lives = 0
        self._scenario: Scenario = scenario_of(chance)
        self._queues = {
            each.name: SimulatedQueue(each.name, clock, each.visibility_s, ordered=each.ordered)
            for each in self._scenario.queues
        }
        self._endpoints = {
            url: SimulatedEndpoint(faults, chance.fork(url)) for url, faults in self._scenario.endpoints.items()
        }
        self._pointers = {each.pointer.id: each.pointer for each in self._scenario.publications}
        self._network = SimulatedNetwork(self._endpoints, self._pointers, self._limits_of, clock)
        self._configuration = self._scenario.configuration()
        self._world_tasks: set[asyncio.Task[None] | None] = set()
        self._life: RouterLife

    async def run(self) -> History:
        """Publish, inject faults, wait until all is delivered, and check."""
        publishing = asyncio.create_task(self._publish())
        self._world_tasks = {asyncio.current_task(), publishing}
        await self._start()
        await self._trouble()
        await publishing
        await self._calm_down()
        await self._life.stop()
        self._check()
        passed_s = asyncio.get_running_loop().time()
        return History(len(self._pointers), passed_s, tuple(self._network.deliveries))

    async def _publish(self) -> None:
        passed_s = 0.0
        for each in self._scenario.publications:
            await asyncio.sleep(each.at_s - passed_s)
            passed_s = each.at_s
            self._queues[each.queue].send(encode_pointer(each.pointer), each.pointer.group)

    async def _start(self) -> None:
        self._lives += 1
        chance = self._chance.fork(f"life {self._lives}")
        faults = {each.name: each.faults for each in self._scenario.queues}
        self._life = RouterLife(self._queues, faults, self._network.link(), self._clock, chance)
        await self._life.router.apply(self._configuration)

    async def _trouble(self) -> None:
        actions = [self._change_limits, self._drop_a_pool, self._drop_a_queue, self._restart, self._kill, self._nothing]
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
        await self._life.stop()
        await asyncio.sleep(self._chance.between(0.0, 30.0))
        await self._start()

    async def _kill(self) -> None:
        self._life.cut()
        for task in sorted(asyncio.all_tasks() - self._world_tasks, key=_creation_order):
            task.cancel()
        await asyncio.sleep(self._chance.between(0.1, 30.0))
        await self._start()

    async def _configure(self, configuration: RouterConfiguration) -> None:
        self._configuration = configuration
        await self._life.router.apply(configuration)
        self._network.limits_changed()

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

    def _limits_of(self, pointer: MessagePointer) -> PoolLimits:
        router = self._life.router
        tracked = router.find(pointer.id)
        assert tracked is not None, "a message is delivered but not tracked"
        view = next(view for view in router.pools() if view.code == tracked.pool_code)
        return PoolLimits(view.code, view.concurrency, view.rate_limit_per_minute)


def _creation_order(task: "asyncio.Task[object]") -> tuple[int, str]:
    """Sort tasks by creation, which their names show; the order of a set differs between runs."""
    name = task.get_name()
    return len(name), name
