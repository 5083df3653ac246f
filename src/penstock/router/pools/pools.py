"""All pools of a router: creates, changes and drains them, and finds the pool that a message names."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence, Set

from penstock.domain.errors import FailedPrecondition
from penstock.domain.pace.rate import SlidingWindow
from penstock.domain.pointer import DEFAULT_POOL_CODE
from penstock.edge.clock import Clock
from penstock.router.config.configuration import PoolConfiguration
from penstock.router.config.plan import PoolPlan, plan_pools
from penstock.router.intake.tracker import InFlightTracker
from penstock.router.monitoring.warnings import ROUTER, WarningCode, Warnings, WarningSeverity
from penstock.router.pools.counts import RouterMetrics
from penstock.router.pools.mediator import Mediator, StagedMediator
from penstock.router.pools.pool import SHRINK_WAIT_S, DeliveryPool
from penstock.router.pools.shared_rate import PermitSource, RateLimit, SharedRate

DEFAULT_POOL_CONCURRENCY = 20

_log = logging.getLogger(__name__)


class Pools:
    """The pools by code, the draining ones, and those that served a code before."""

    def __init__(
        self,
        mediator: Mediator | StagedMediator,
        tracker: InFlightTracker,
        clock: Clock,
        warnings: Warnings,
        metrics: RouterMetrics,
        permits: PermitSource | None = None,
    ) -> None:
        self._mediator = mediator
        self._tracker = tracker
        self._clock = clock
        self._warnings = warnings
        self._metrics = metrics
        self._permits = permits
        self._pools: dict[str, DeliveryPool] = {}
        self._configurations: dict[str, PoolConfiguration] = {}
        self._draining: list[DeliveryPool] = []
        # Pools that served a code before the one that serves it now.
        self._former: dict[str, list[DeliveryPool]] = {}

    def __iter__(self) -> Iterator[DeliveryPool]:
        """Iterate over the pools that accept messages."""
        return iter(self._pools.values())

    def all(self) -> list[DeliveryPool]:
        """Return all pools, the draining ones last."""
        return [*self._pools.values(), *self._draining]

    @property
    def held(self) -> int:
        """Number of messages in all pools."""
        return sum(pool.held for pool in self.all())

    def plan(self, wanted: Sequence[PoolConfiguration], max_pools: int, warning_threshold: int) -> PoolPlan:
        """Return the steps to the pools wanted, and warn of those that the limits refuse."""
        plan = plan_pools(self._configurations, wanted, max_pools, warning_threshold)
        for warning in plan.warnings:
            self._warnings.add(WarningCode.POOL_LIMIT, warning.severity, ROUTER, warning.message)
        return plan

    def create(self, wanted: PoolConfiguration) -> DeliveryPool:
        """Create a pool, or reopen the draining one of the same code."""
        pool = self._reopen(wanted) or DeliveryPool(
            wanted.code,
            wanted.concurrency,
            wanted.rate_limit_per_minute,
            self._mediator,
            self._clock,
            self._warnings,
            self._metrics.pool(wanted.code),
            self._new_rate(wanted.code),
        )
        pool.share(shared=wanted.shared)
        if default := self._pools.get(DEFAULT_POOL_CODE):
            self._former.setdefault(wanted.code, []).append(default)
        self._pools[wanted.code] = pool
        self._configurations[wanted.code] = wanted
        return pool

    def _new_rate(self, code: str) -> Callable[[int], RateLimit]:
        permits = self._permits
        return SlidingWindow if permits is None else lambda limit: SharedRate(permits, code, limit)

    def _reopen(self, wanted: PoolConfiguration) -> DeliveryPool | None:
        """Reopen the draining pool of a code, as two pools at once could exceed the limits."""
        pool = next((each for each in self._draining if each.code == wanted.code), None)
        if pool is not None:
            self._draining.remove(pool)
            pool.reopen(wanted.concurrency, wanted.rate_limit_per_minute)
        return pool

    def drain(self, code: str) -> None:
        """Let a pool accept no more messages; it is removed when its deliveries have ended."""
        pool = self._pools.pop(code)
        del self._configurations[code]
        self._draining.append(pool)
        self._former.setdefault(code, []).append(pool)
        pool.drain()

    async def change(self, wanted: PoolConfiguration) -> bool:
        """Change a pool's limits; return False if deliveries did not end in time for a lower concurrency."""
        pool = self._pools[wanted.code]
        pool.change_rate_limit(wanted.rate_limit_per_minute)
        pool.share(shared=wanted.shared)
        changed = pool.concurrency == wanted.concurrency or await pool.change_concurrency(wanted.concurrency)
        if self._pools.get(wanted.code) is pool:
            self._configurations[wanted.code] = PoolConfiguration(
                wanted.code, pool.concurrency, pool.rate_limit_per_minute, wanted.shared
            )
        return changed

    async def change_limits(
        self, code: str, *, concurrency: int | None, rate_limit_per_minute: int | None, unlimited_rate: bool
    ) -> bool:
        """Change the limits that are not None; return False if there is no such pool.

        Raise FailedPrecondition if deliveries did not end in time for a lower concurrency.
        """
        pool = self._pools.get(code)
        if pool is None:
            return False
        rate = None if unlimited_rate else rate_limit_per_minute or pool.rate_limit_per_minute
        shared = self._configurations[code].shared
        if not await self.change(PoolConfiguration(code, concurrency or pool.concurrency, rate, shared)):
            raise FailedPrecondition(
                f"pool {code} still has {pool.active} deliveries after {SHRINK_WAIT_S:g} s; its concurrency stays "
                f"{pool.concurrency}; try again when they have ended"
            )
        return True

    def pool_for(self, code: str, messages: int) -> DeliveryPool:
        """Return the pool for messages that name a code."""
        return self._pools.get(code) or self._default(code, messages)

    def _default(self, code: str, messages: int) -> DeliveryPool:
        if code != DEFAULT_POOL_CODE:
            self._metrics.default_pool_used(messages)
            self._warnings.add(
                WarningCode.ROUTING,
                WarningSeverity.WARN,
                ROUTER,
                f"there is no pool {code!r}; its messages go to {DEFAULT_POOL_CODE}",
            )
        return self._pools.get(DEFAULT_POOL_CODE) or self.create(
            PoolConfiguration(DEFAULT_POOL_CODE, DEFAULT_POOL_CONCURRENCY)
        )

    def held_elsewhere(self, code: str, pool: DeliveryPool) -> Set[str]:
        """Return the groups of a code of which a former pool has messages; two pools must not serve one at once."""
        former = self._former.get(code)
        if former is None:
            return frozenset()
        others = [each for each in former if each is not pool]
        held = {each.group for each in self._tracker if each.pointer.pool_code == code and each.pool in others}
        if not held:
            del self._former[code]
        return held

    def remove_drained(self) -> None:
        """Remove drained pools, and the former pools of codes that no message in flight names."""
        for pool in [each for each in self._draining if each.is_removable]:
            self._draining.remove(pool)
            self._metrics.forget(pool.code)
        if self._former:
            in_use = {message.pointer.pool_code for message in self._tracker}
            self._former = {code: former for code, former in self._former.items() if code in in_use}

    async def drain_all(self, wait_s: float) -> None:
        """Drain all pools: wait for their deliveries, and cancel those that take longer than `wait_s`."""
        for code in list(self._pools):
            self.drain(code)
        drained = await asyncio.gather(*(pool.wait_until_drained(wait_s) for pool in self._draining))
        for pool, in_time in zip(self._draining, drained, strict=True):
            if not in_time:
                _log.warning("pool %s: %d deliveries did not end in time", pool.code, pool.active)
                pool.stop()
                await pool.wait_until_drained(wait_s)
            assert pool.active == pool.held == 0, "a permit or a message is left"
        self._draining.clear()
        self._former.clear()
