"""One run of a simulated router, from its start to its graceful stop or its crash."""

import asyncio
from collections.abc import Mapping

from penstock.delivery import Breakers, DeliverySettings
from penstock.queues import QueueSpec
from penstock.router import (
    HttpMediator,
    Router,
    RouterConfiguration,
    RouterMetrics,
    RouterWarning,
    TaskSchedule,
    WarningCode,
    Warnings,
    router_tasks,
)
from penstock.testing.simulation.chance import Chance
from penstock.testing.simulation.history import InvariantBroken
from penstock.testing.simulation.network import NetworkLink, PoolLimits, SimulatedNetwork
from penstock.testing.simulation.queue import SimulatedQueue
from penstock.testing.simulation.source import LinkFaults, SimulatedSource
from penstock.testing.virtual_loop import LoopClock, VirtualProcess

# Warnings that something here may cause whether or not a queue is in trouble.
_EXPECTED = {WarningCode.ROUTING, WarningCode.QUEUE_FULL, WarningCode.CONFIGURATION}
# Warnings of queues: they are true of those that lose requests, cannot be opened, or are cut off.
_OF_QUEUES = {WarningCode.QUEUE_VALIDATION, WarningCode.CONSUMER_RESTART, WarningCode.SHUTDOWN_CLEANUP_ERRORS}


class RouterLife:
    """A router with connections to queues and endpoints that outlive it."""

    def __init__(
        self,
        queues: Mapping[str, SimulatedQueue],
        faults: Mapping[str, LinkFaults],
        network: SimulatedNetwork,
        clock: LoopClock,
        chance: Chance,
    ) -> None:
        self._process = VirtualProcess()
        self._queues = queues
        self._faults = faults
        self._chance = chance
        self._sources: list[SimulatedSource] = []
        self._link = NetworkLink(network, clock, self.limits_of, self._has_lease)
        self._is_cut_off = False
        # The queues that have ever been in trouble during this run.
        self._in_trouble = {name for name, each in faults.items() if each.loses_requests}
        self._process.context.run(self._start, clock)

    def _start(self, clock: LoopClock) -> None:
        self._warnings = Warnings(clock)
        breakers = Breakers(clock)
        mediator = HttpMediator(self._link, breakers, clock, self._warnings.add, DeliverySettings())
        self.router = Router(self._source, mediator, clock, self._warnings, RouterMetrics(), breakers)
        tasks = router_tasks(self.router)
        self._schedule = asyncio.create_task(TaskSchedule(tasks, lambda: True, asyncio.sleep).run())

    def _source(self, queue: QueueSpec) -> SimulatedSource:
        name = queue.queue_name
        chance = self._chance.fork(f"source {len(self._sources)}")
        source = SimulatedSource(self._queues[name], self._faults[name], chance, self)
        source.is_cut_off = self._is_cut_off
        self._sources.append(source)
        return source

    def _has_lease(self, message_id: str) -> bool:
        tracked = self.router.find(message_id)
        return tracked is not None and self._queues[tracked.queue].is_leased(tracked.broker_message_id, self)

    def limits_of(self, message_id: str) -> PoolLimits:
        """Return the limits of the pool that a message is in."""
        tracked = self.router.find(message_id)
        assert tracked is not None, "a message is delivered but not tracked"
        view = next(view for view in self.router.pools() if view.code == tracked.pool_code)
        return PoolLimits(view.code, view.concurrency, view.rate_limit_per_minute)

    def unnoticed(self, queue: str) -> str | None:
        """Return what is wrong with the health of a queue that was never reached; None if it is as it should be."""
        (view,) = [each for each in self.router.queues() if each.name == queue and not each.draining]
        if view.healthy:
            return f"queue {queue} is healthy though it was never opened"
        if not any(each.code == WarningCode.QUEUE_VALIDATION for each in self._warnings.listed()):
            return f"queue {queue} was never opened, and no warning says so"
        return None

    async def configure(self, configuration: RouterConfiguration) -> None:
        """Apply a configuration."""
        await self._process.run(self.router.apply(configuration))
        self._link.limits_changed()

    def suspend(self) -> None:
        """Stop running, as a process does that gets SIGSTOP."""
        self._process.stop()

    def go_on(self) -> None:
        """Run again after `suspend`."""
        self._process.go_on()

    def cut_off(self, *, is_cut_off: bool) -> None:
        """Lose the network to the queues, or have it again."""
        self._is_cut_off = is_cut_off
        self._in_trouble.update(self._queues)
        for source in self._sources:
            source.is_cut_off = is_cut_off

    def check_warnings(self) -> None:
        """Raise InvariantBroken if something was warned of that is not so."""
        for each in self._warnings.listed():
            is_true = each.code in _OF_QUEUES and self._names_trouble(each)
            if each.code not in _EXPECTED and not is_true:
                raise InvariantBroken(f"a false warning: {each.code}: {each.message}")

    def _names_trouble(self, warning: RouterWarning) -> bool:
        text = f"{warning.source} {warning.message}"
        named = {name for name in self._queues if name in text} or self._queues.keys()
        return not named.isdisjoint(self._in_trouble)

    async def stop(self) -> None:
        """Stop gracefully; raise InvariantBroken if a message is still tracked, or a warning was false."""
        self._schedule.cancel()
        await self._process.run(self.router.shut_down())
        if left := self.router.in_flight(5).messages:
            raise InvariantBroken(f"tracked after the stop: {left}")
        self.check_warnings()

    def kill(self) -> None:
        """Crash: have no effect from now on."""
        self._link.cut()
        for source in self._sources:
            source.crash()
        for task in sorted(self._process.tasks, key=_creation_order):
            task.cancel()


def _creation_order(task: "asyncio.Task[object]") -> tuple[int, str]:
    """Sort tasks by creation, which their names show; the order of a set differs between runs."""
    name = task.get_name()
    return len(name), name
