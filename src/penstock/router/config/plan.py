"""Decisions about a new configuration, as data: pools and queues to change, and the share of one worker process."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from penstock.domain.message import fnv1a_32
from penstock.domain.pointer import DEFAULT_POOL_CODE
from penstock.queues import QueueSpec
from penstock.router.config.configuration import PoolConfiguration, RouterConfiguration
from penstock.router.monitoring.warnings import WarningSeverity

_MAX_NAMED_POOLS = 10


class PoolLimitWarning(msgspec.Struct, frozen=True):
    """A POOL_LIMIT warning that a plan causes."""

    severity: WarningSeverity
    message: str


class PoolPlan(msgspec.Struct, frozen=True):
    """Pools to drain (by code), to change and to create, and those that the limit on pools refuses."""

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
    """Return the steps from the existing pools to those wanted; the default pool is created on demand and stays."""
    codes = {pool.code for pool in wanted}
    drain = tuple(code for code in existing if code not in codes and code != DEFAULT_POOL_CODE)
    change = tuple(pool for pool in wanted if pool.code in existing and pool != existing[pool.code])
    missing = [pool for pool in wanted if pool.code not in existing]
    kept = len(existing) - len(drain)
    room = max(0, max_pools - kept)
    create, refused = tuple(missing[:room]), tuple(missing[room:])
    # ROUTER-CONFIG-6 compares the number of pools before each one is created.
    crowded = bool(create) and kept + len(create) > warning_threshold
    warnings = [*_refusals(refused, max_pools), *([_crowding(kept + len(create), max_pools)] if crowded else [])]
    return PoolPlan(drain, change, create, refused, tuple(warnings))


def plan_queues(existing: Mapping[str, QueueSpec], wanted: Sequence[QueueSpec]) -> QueuePlan:
    """Return the steps from the consumed queues to those wanted; unchanged queues are not touched."""
    as_wanted = {queue.queue_name: queue for queue in wanted}
    stop = tuple(name for name, queue in existing.items() if as_wanted.get(name) != queue)
    start = tuple(queue for queue in wanted if existing.get(queue.queue_name) != queue)
    return QueuePlan(stop, start)


def _refusals(refused: Sequence[PoolConfiguration], max_pools: int) -> Iterable[PoolLimitWarning]:
    if refused:
        names = ", ".join(pool.code for pool in refused[:_MAX_NAMED_POOLS])
        more = ", …" if len(refused) > _MAX_NAMED_POOLS else ""
        yield PoolLimitWarning(
            WarningSeverity.CRITICAL,
            f"{len(refused)} pools were not created; the limit is {max_pools}: {names}{more}; raise router.max_pools",
        )


def _crowding(pools: int, max_pools: int) -> PoolLimitWarning:
    return PoolLimitWarning(WarningSeverity.WARN, f"there are {pools} pools; the limit is {max_pools}")


def worker_share(
    configuration: RouterConfiguration,
    worker: int,
    workers: int,
    can_share: Callable[[QueueSpec], bool],
) -> RouterConfiguration:
    """Return the part of one worker process: the shared queues, its own of the others, and its share of every limit.

    A queue can be shared if its broker never gives a group to two consumers at once; any other has one worker.
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
        pool.shared,
    )


def _part(limit: int, worker: int, workers: int) -> int:
    # At least 1: a worker with a limit of 0 could never deliver the messages of its queues.
    return max(1, limit // workers + (1 if worker < limit % workers else 0))
