"""What one of several worker processes takes of a router's configuration, so that all together do what one would."""

from collections.abc import Callable

from penstock.domain.partition import fnv1a_32
from penstock.router.configuration import PoolConfiguration, RouterConfiguration
from penstock.sources.opening import QueueSpec


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
