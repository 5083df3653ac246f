"""What a new configuration means for the pools and consumers there are: decisions as data.

What one of several worker processes takes of a router's configuration, so that all together do what one would.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from penstock.domain.message import fnv1a_32
from penstock.domain.pointer import DEFAULT_POOL_CODE
from penstock.queues import QueueSpec
from penstock.router.config.configuration import PoolConfiguration, RouterConfiguration
from penstock.router.monitoring.warnings import WarningSeverity

_NAMED = 10


class PoolLimitWarning(msgspec.Struct, frozen=True):
    """A POOL_LIMIT warning that follows from a plan."""

    severity: WarningSeverity
    message: str


class PoolPlan(msgspec.Struct, frozen=True):
    """Pools to drain (by code), to change and to make, in this order; and what the limit refuses."""

    drain: tuple[str, ...]
    change: tuple[PoolConfiguration, ...]
    create: tuple[PoolConfiguration, ...]
    refused: tuple[PoolConfiguration, ...]
    warnings: tuple[PoolLimitWarning, ...]


class QueuePlan(msgspec.Struct, frozen=True):
    """Consumers to stop (by queue name) and to start; a queue whose settings changed is in both."""

    stop: tuple[str, ...]
    start: tuple[QueueSpec, ...]


def plan_pools(
    existing: Mapping[str, PoolConfiguration],
    wanted: Sequence[PoolConfiguration],
    max_pools: int,
    warning_threshold: int,
) -> PoolPlan:
    """From the pools there are to the pools wanted. The default pool is made on demand and stays."""
    codes = {pool.code for pool in wanted}
    drain = tuple(code for code in existing if code not in codes and code != DEFAULT_POOL_CODE)
    change = tuple(pool for pool in wanted if pool.code in existing and pool != existing[pool.code])
    missing = [pool for pool in wanted if pool.code not in existing]
    kept = len(existing) - len(drain)
    room = max(0, max_pools - kept)
    create, refused = tuple(missing[:room]), tuple(missing[room:])
    # The number of pools is compared before each one is made (ROUTER-CONFIG-6).
    crowded = bool(create) and kept + len(create) > warning_threshold
    warnings = [*_refusals(refused, max_pools), *([_crowding(kept + len(create), max_pools)] if crowded else [])]
    return PoolPlan(drain, change, create, refused, tuple(warnings))


def plan_queues(existing: Mapping[str, QueueSpec], wanted: Sequence[QueueSpec]) -> QueuePlan:
    """From the queues consumed to the queues wanted; those that did not change are left alone."""
    as_wanted = {queue.queue_name: queue for queue in wanted}
    stop = tuple(name for name, queue in existing.items() if as_wanted.get(name) != queue)
    start = tuple(queue for queue in wanted if existing.get(queue.queue_name) != queue)
    return QueuePlan(stop, start)


def _refusals(refused: Sequence[PoolConfiguration], max_pools: int) -> Iterable[PoolLimitWarning]:
    if refused:
        names = ", ".join(pool.code for pool in refused[:_NAMED]) + (", …" if len(refused) > _NAMED else "")
        yield PoolLimitWarning(
            WarningSeverity.CRITICAL,
            f"{len(refused)} pools were not made, for there may be {max_pools}: {names}; raise router.max_pools",
        )


def _crowding(pools: int, max_pools: int) -> PoolLimitWarning:
    return PoolLimitWarning(WarningSeverity.WARN, f"there are {pools} pools, and there may be {max_pools}")


def share_of(
    configuration: RouterConfiguration,
    worker: int,
    workers: int,
    can_share: Callable[[QueueSpec], bool],
) -> RouterConfiguration:
    """The part of a worker: queues that several may consume, its own of the others, and its part of every limit.

    A queue can be shared if its broker never hands a group to two consumers at once; any other goes to one worker.
    """
    pools = tuple(_pool_share(pool, worker, workers) for pool in configuration.processing_pools)
    queues = tuple(
        queue for queue in configuration.queues if can_share(queue) or fnv1a_32(queue.queue_name) % workers == worker
    )
    return RouterConfiguration(pools, queues)


def _pool_share(pool: PoolConfiguration, worker: int, workers: int) -> PoolConfiguration:
    rate = pool.rate_limit_per_minute
    return PoolConfiguration(
        pool.code,
        _part(pool.concurrency, worker, workers),
        None if rate is None else _part(rate, worker, workers),
    )


def _part(limit: int, worker: int, workers: int) -> int:
    """A worker with no part at all could never deliver what its queues bring, so each has one at least."""
    return max(1, limit // workers + (1 if worker < limit % workers else 0))
