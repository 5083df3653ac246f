"""The router's configuration: its pools and the queues that feed them.

{"processingPools": [{"code": "P", "concurrency": 10, "rateLimitPerMinute": 600}],
 "queues": [{"queueName": "orders", "queueUri": "http://…/orders.fifo", "connections": 1, "visibilityTimeout": 120}]}

Unknown fields are ignored: the platform that writes the configuration may be newer than the router.
"""

from collections.abc import Iterable, Sequence

import msgspec

from penstock.domain.errors import InvalidArgument
from penstock.domain.outcome import MAX_DELAY_S
from penstock.ops.telemetry import mask_whole_url
from penstock.queues import QueueSpec, queue_uri
from penstock.router.monitoring.warnings import WarningCode, Warnings, WarningSeverity

MAX_CONCURRENCY = 100_000
MAX_CONNECTIONS = 100
MAX_RATE_PER_MINUTE = 100_000_000
MAX_NAME_CHARS = 256

_NAME_RULE = f"a name is 1 to {MAX_NAME_CHARS} printable characters"


class PoolConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """A pool: its concurrent deliveries, its deliveries per minute (None: unlimited), and whether it is shared.

    Of a shared pool one subscription never has more than half, also before another one sends anything.
    """

    code: str
    concurrency: int
    rate_limit_per_minute: int | None = None
    shared: bool = False


class RouterConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """The pools and queues of a router."""

    processing_pools: tuple[PoolConfiguration, ...] = ()
    queues: tuple[QueueSpec, ...] = ()


def parse_configuration(document: object, source: str) -> RouterConfiguration:
    """Return the configuration in a decoded document; raise InvalidArgument naming every problem if it is invalid."""
    try:
        found = msgspec.convert(document, RouterConfiguration)
    except msgspec.ValidationError as error:
        raise _refusal(source, [str(error)]) from error
    if not isinstance(document, dict) or not {"processingPools", "queues"} & document.keys():
        raise _refusal(source, ["it has neither processingPools nor queues"])
    if problems := [*_pool_problems(found.processing_pools), *_queue_problems(found.queues)]:
        raise _refusal(source, problems)
    return found


def merge(configurations: Iterable[RouterConfiguration]) -> RouterConfiguration:
    """Merge configurations into one; of pools with one code, and of queues with one name or URI, the first wins."""
    pools: dict[str, PoolConfiguration] = {}
    queues: dict[str, QueueSpec] = {}
    uris: set[str] = set()
    for each in configurations:
        for pool in each.processing_pools:
            pools.setdefault(pool.code, pool)
        for queue in each.queues:
            if queue.queue_name not in queues and queue.queue_uri not in uris:
                queues[queue.queue_name] = queue
                uris.add(queue.queue_uri)
    return RouterConfiguration(tuple(pools.values()), tuple(queues.values()))


def _refusal(source: str, problems: Sequence[str]) -> InvalidArgument:
    return InvalidArgument(f"the router configuration from {mask_whole_url(source)} is invalid: {'; '.join(problems)}")


def _pool_problems(pools: Sequence[PoolConfiguration]) -> Iterable[str]:
    yield from _repeated("pool code", [pool.code for pool in pools])
    for pool in pools:
        if not _is_name(pool.code):
            yield f"pool {pool.code!r}: {_NAME_RULE}"
        if not 1 <= pool.concurrency <= MAX_CONCURRENCY:
            yield f"pool {pool.code!r}: concurrency is {pool.concurrency}; give 1 to {MAX_CONCURRENCY}"
        rate = pool.rate_limit_per_minute
        if rate is not None and not 1 <= rate <= MAX_RATE_PER_MINUTE:
            limits = f"1 to {MAX_RATE_PER_MINUTE}, or null for no limit"
            yield f"pool {pool.code!r}: rateLimitPerMinute is {rate}; give {limits}"


def _queue_problems(queues: Sequence[QueueSpec]) -> Iterable[str]:
    yield from _repeated("queue name", [queue.queue_name for queue in queues])
    yield from _repeated("queue URI", [queue.queue_uri for queue in queues])
    for queue in queues:
        if not _is_name(queue.queue_name):
            yield f"queue {queue.queue_name!r}: {_NAME_RULE}"
        if not queue.queue_uri.strip():
            yield f"queue {queue.queue_name!r}: queueUri is empty"
        if not 1 <= queue.connections <= MAX_CONNECTIONS:
            yield f"queue {queue.queue_name!r}: connections is {queue.connections}; give 1 to {MAX_CONNECTIONS}"
        timeout_s = queue.visibility_timeout
        if timeout_s is not None and not 1 <= timeout_s <= MAX_DELAY_S:
            yield f"queue {queue.queue_name!r}: visibilityTimeout is {timeout_s}; give 1 to {MAX_DELAY_S} seconds"


def _is_name(name: str) -> bool:
    return name.isprintable() and bool(name.strip()) and len(name) <= MAX_NAME_CHARS


def _repeated(what: str, names: Iterable[str]) -> Iterable[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f"the {what} {mask_whole_url(name)!r} is used twice; give each one once"
        seen.add(name)


def with_usable_queues(configuration: RouterConfiguration, warnings: Warnings) -> RouterConfiguration:
    """Return the configuration without the queues whose URI is invalid; warn of each of those (ROUTER-CONFIG-7)."""
    usable = tuple(queue for queue in configuration.queues if _is_usable(queue, warnings))
    return msgspec.structs.replace(configuration, queues=usable)


def _is_usable(queue: QueueSpec, warnings: Warnings) -> bool:
    try:
        queue_uri(queue.queue_uri)
    except InvalidArgument as error:
        reason = f"queue {queue.queue_name} is not consumed: {error.message}"
        warnings.add(WarningCode.QUEUE_VALIDATION, WarningSeverity.WARN, f"queue {queue.queue_name}", reason)
        return False
    return True
