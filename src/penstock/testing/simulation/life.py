"""One run of a simulated router, from its start to its graceful stop or its crash."""

import asyncio
from collections.abc import Mapping

from penstock.delivery import Breakers, DeliverySettings
from penstock.queues import QueueSpec
from penstock.router import HttpMediator, PeriodicTask, Router, RouterMetrics, TaskSchedule, Warnings
from penstock.testing.simulation.chance import Chance
from penstock.testing.simulation.history import InvariantBroken
from penstock.testing.simulation.network import NetworkLink
from penstock.testing.simulation.queue import SimulatedQueue
from penstock.testing.simulation.source import LinkFaults, SimulatedSource
from penstock.testing.virtual_loop import LoopClock


class RouterLife:
    """A router with connections to queues and endpoints that outlive it."""

    def __init__(
        self,
        queues: Mapping[str, SimulatedQueue],
        faults: Mapping[str, LinkFaults],
        link: NetworkLink,
        clock: LoopClock,
        chance: Chance,
    ) -> None:
        self._queues = queues
        self._faults = faults
        self._link = link
        self._chance = chance
        self._sources: list[SimulatedSource] = []
        self._warnings = Warnings(clock)
        breakers = Breakers(clock)
        mediator = HttpMediator(link, breakers, clock, self._warnings.add, DeliverySettings())
        self.router = Router(self._source, mediator, clock, self._warnings, RouterMetrics(), breakers)
        tasks = (
            PeriodicTask("monitor", 60, self.router.restart_unhealthy_consumers),
            PeriodicTask("clean-up", 10, self.router.clean_up_drained),
            PeriodicTask("leaks", 30, self.router.check_for_leaks),
        )
        self._schedule = asyncio.create_task(TaskSchedule(tasks, lambda: True, asyncio.sleep).run())

    def _source(self, queue: QueueSpec) -> SimulatedSource:
        name = queue.queue_name
        chance = self._chance.fork(f"source {len(self._sources)}")
        source = SimulatedSource(self._queues[name], self._faults[name], chance)
        self._sources.append(source)
        return source

    async def stop(self) -> None:
        """Stop gracefully; raise InvariantBroken if a message is still tracked."""
        self._schedule.cancel()
        await self.router.shut_down()
        if left := self.router.in_flight(5).messages:
            raise InvariantBroken(f"tracked after the stop: {left}")

    def cut(self) -> None:
        """Crash: have no effect from now on."""
        self._link.cut()
        for source in self._sources:
            source.crash()
