"""Measures the router: deliveries to a receiver in another process, compared with a bare client in the same run."""

import asyncio
import gc
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_network
from itertools import islice
from typing import TypeVar

import msgspec
import uvloop

from penstock.delivery import Breakers, DeliverySettings, EgressGuard, HttpClient, request_head
from penstock.domain.outcome import SUCCESS, MediationOutcome
from penstock.domain.pointer import MessagePointer, encode_pointer
from penstock.edge.clock import SystemClock
from penstock.ops.config import RouterOptions
from penstock.queues import Publication, QueueSpec, Received, Source, publisher_for, source_for
from penstock.router import (
    HttpMediator,
    Mediator,
    PoolConfiguration,
    Router,
    RouterConfiguration,
    RouterMetrics,
    Warnings,
)
from penstock.tools.bench.bare_client import post_all
from penstock.tools.bench.memory_source import MemorySource
from penstock.tools.bench.servers import port_of, server_process, sqs_queue

POOL = "bench"
_MESSAGES = 40_000
_SQS_MESSAGES = 20_000
# More than the pool holds, so that the queue is never empty: the pauses of its polls would be measured.
_SQS_BACKLOG = 6_000
_GROUPS = 1_000
_CONCURRENCY = 256
_MANY_GROUPS = 10_000
_MANY_CONCURRENCY = 5_000
_SLOW_S = 0.1
_HELD = 50_000
_IDLE_S = 3.0


A = TypeVar("A")


class RouterFigures(msgspec.Struct, kw_only=True):
    """The figures of `penstock bench router`."""

    ceiling_per_s: float
    """POSTs by a bare client of asyncio and httptools."""
    in_process_per_s: float
    """Deliveries from a source in memory, 1,000 groups."""
    in_process_ratio: float
    """That rate over the ceiling."""
    sqs_per_s: float
    """Deliveries from a FIFO queue of Penstock's SQS server, durable on SQLite, up to deletion, with a backlog."""
    sqs_ratio: float
    """That rate over the ceiling."""
    slow_receiver_per_s: float
    """Deliveries to a receiver that takes 100 ms, 5,000 at once, 10,000 groups."""
    slow_receiver_ratio: float
    """That rate over the rate at which one core would be fully used."""
    max_wait_over_median: float
    """In that run, the longest wait of a message for its turn over the median."""
    bytes_per_group: float
    """Memory of a waiting group, without its messages."""
    bytes_per_message: float
    """Memory of a waiting message, without its body."""
    flat_ratio: float
    """Processor time per message with 100,000 groups over the same with 10."""
    idle_cpu: float
    """Share of a core that an idle router uses after 10,000 groups."""


def bench_router(rounds: int, report: Callable[[str], None]) -> RouterFigures:
    """Measure everything; `report` is called with each step."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # as `penstock serve` sets it
    ceilings, ours, through_sqs = [], [], []
    with _receiver(0.0) as port:
        for number in range(rounds):
            report(f"the ceiling, and the router from memory and from SQS (round {number + 1} of {rounds})")
            ceilings.append(_run(_ceiling(port)))
            ours.append(_run(_in_process(port)))
            through_sqs.append(_through_sqs(port))
    report(f"{_MANY_CONCURRENCY:,} deliveries at once to a receiver that takes 100 ms")
    with _receiver(_SLOW_S) as port:
        slow, slow_ratio, waits = _run(_slow_receiver(port))
    report("memory, the cost of many groups, and idling")
    per_message = _run(_held_bytes(groups=1))
    per_group = _run(_held_bytes(groups=_HELD)) - per_message
    flat = statistics.median(_run(_cost(100_000)) / _run(_cost(10)) for _ in range(rounds))
    ceiling, in_process, sqs = (statistics.median(each) for each in (ceilings, ours, through_sqs))
    return RouterFigures(
        ceiling_per_s=ceiling,
        in_process_per_s=in_process,
        in_process_ratio=statistics.median(map(_ratio, ours, ceilings)),
        sqs_per_s=sqs,
        sqs_ratio=statistics.median(map(_ratio, through_sqs, ceilings)),
        slow_receiver_per_s=slow,
        slow_receiver_ratio=slow_ratio,
        max_wait_over_median=max(waits) / statistics.median(waits),
        bytes_per_group=per_group,
        bytes_per_message=per_message,
        flat_ratio=flat,
        idle_cpu=_run(_idle_cpu()),
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole


def _run(work: Coroutine[None, None, A]) -> A:
    return uvloop.run(work)


@contextmanager
def _receiver(delay_s: float) -> Iterator[int]:
    with server_process("-m", "penstock.tools.bench.receiver_server", str(delay_s)) as url:
        yield port_of(url)


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}/process"


async def _ceiling(port: int) -> float:
    head = request_head(_url(port), "bench-token")
    requests = [head.http1(b'{"messageId":"0HZXEQ5Y8%08d"}' % number, None) for number in range(_MESSAGES)]
    started_s = time.perf_counter()
    await post_all(port, iter(requests), _CONCURRENCY)
    return _MESSAGES / (time.perf_counter() - started_s)


async def _in_process(port: int) -> float:
    source = MemorySource(iter(list(pointers(_MESSAGES, _GROUPS, _url(port)))), _MESSAGES)
    # The prepared messages are not part of the router: keep the garbage collector from scanning them.
    gc.freeze()
    async with http_mediator() as mediator, running_router(lambda _: source, mediator, _CONCURRENCY) as router:
        rate, _ = await timed(source.all_settled, _MESSAGES)
        _check_delivered(router, _MESSAGES)
    return rate


def _check_delivered(router: Router, count: int) -> None:
    """Raise RuntimeError if a delivery failed, as failures are fast and would distort the rate."""
    (pool,) = router.pools()
    if pool.succeeded != count:
        raise RuntimeError(f"only {pool.succeeded} of {count} messages were delivered")


def _through_sqs(port: int) -> float:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory, sqs_queue(directory, "bench.fifo") as uri:
        return _run(_from_sqs(port, uri))


async def _from_sqs(port: int, uri: str) -> float:
    await _fill(uri, port)

    def make(queue: QueueSpec) -> Source:
        return source_for(QueueSpec(queue.queue_name, uri, queue.connections, 120))

    async with http_mediator() as mediator, running_router(make, mediator, _CONCURRENCY, connections=8) as router:
        started_s = time.perf_counter()
        while (deleted := _deleted(router)) < _SQS_MESSAGES:  # noqa: ASYNC110  the router has no event for it
            await asyncio.sleep(0.005)
        return deleted / (time.perf_counter() - started_s)


def _deleted(router: Router) -> int:
    """Return the number of deleted messages; raise RuntimeError if one was nacked."""
    (queue,) = router.queues()
    if queue.nacked:
        raise RuntimeError(f"{queue.nacked} messages were nacked")
    return queue.received - queue.in_flight


async def _fill(uri: str, port: int) -> None:
    publisher = publisher_for(uri)
    await publisher.open()
    messages = pointers(_SQS_MESSAGES + _SQS_BACKLOG, _GROUPS, _url(port))
    while chunk := list(islice(messages, 1000)):
        failures = await publisher.publish([Publication(each.body, each.group, each.broker_id) for each in chunk])
        assert not any(failures), failures
    await publisher.close()


async def _slow_receiver(port: int) -> tuple[float, float, list[float]]:
    count = 5 * _MANY_GROUPS
    source = MemorySource(iter(list(pointers(count, _MANY_GROUPS, _url(port)))), count)
    async with http_mediator() as mediator:
        waiting = _WaitingTimes(mediator.attempt)
        async with running_router(lambda _: source, waiting, _MANY_CONCURRENCY) as router:
            rate, cpu_s = await timed(source.all_settled, count)
            _check_delivered(router, count)
    return rate, rate * cpu_s, waiting.waits_s


async def _cost(groups: int) -> float:
    """Return the processor time per message, without deliveries."""
    count = 100_000
    source = MemorySource(iter(list(pointers(count, groups, "http://127.0.0.1/"))), count)
    async with running_router(lambda _: source, _Instant(), _MANY_CONCURRENCY):
        _, cpu_s = await timed(source.all_settled, count)
    return cpu_s


async def _held_bytes(groups: int) -> float:
    """Return the memory per waiting message, including its share of its group."""
    messages = pointers(_HELD, groups, "http://127.0.0.1/process")
    # Capacity is 20 times the concurrency: some messages are being delivered forever, the others wait.
    async with running_router(lambda _: MemorySource(messages, _HELD), _Never(), _HELD // 10) as router:
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        held = 0
        while held < _HELD:
            await asyncio.sleep(0.01)
            held = sum(queue.in_flight for queue in router.queues())
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return (after - before) / _HELD


async def _idle_cpu() -> float:
    source = MemorySource(iter(list(pointers(_MANY_GROUPS, _MANY_GROUPS, "http://127.0.0.1/"))), _MANY_GROUPS)
    async with running_router(lambda _: source, _Instant(), _CONCURRENCY):
        await source.all_settled
        started_s = time.process_time()
        await asyncio.sleep(_IDLE_S)
        return (time.process_time() - started_s) / _IDLE_S


class _WaitingTimes:
    """A mediator that records how long each message waits after the end of the one before it in its group."""

    def __init__(self, attempt: Callable[[MessagePointer, int], Coroutine[None, None, MediationOutcome]]) -> None:
        self._attempt = attempt
        self._ended_s: dict[str, float] = {}
        self.waits_s: list[float] = []

    async def attempt(self, pointer: MessagePointer, attempt: int) -> MediationOutcome:
        """Pass the attempt on."""
        group = pointer.group
        if group in self._ended_s:
            self.waits_s.append(time.perf_counter() - self._ended_s[group])
        outcome = await self._attempt(pointer, attempt)
        self._ended_s[group] = time.perf_counter()
        return outcome


class _Instant:
    """A mediator that delivers immediately."""

    async def attempt(self, pointer: MessagePointer, attempt: int) -> MediationOutcome:
        """Succeed."""
        return SUCCESS


class _Never:
    """A mediator that never finishes."""

    async def attempt(self, pointer: MessagePointer, attempt: int) -> MediationOutcome:
        """Wait forever."""
        await asyncio.Event().wait()
        return SUCCESS


def pointers(count: int, groups: int, target: str) -> Iterator[Received]:
    """Return messages of several groups in turn, as a queue delivers them."""
    for number in range(count):
        group = f"order-{number % groups}"
        pointer = MessagePointer(
            id=f"0HZXEQ5Y8{number:08}",
            mediation_target=target,
            pool_code=POOL,
            auth_token="bench-token",
            message_group_id=group,
        )
        yield Received(f"b-{number}", encode_pointer(pointer), group, f"handle-{number}", ordered=True)


@asynccontextmanager
async def http_mediator() -> AsyncIterator[HttpMediator]:
    """Provide the mediator of `penstock serve router`, with loopback allowed."""
    clock = SystemClock()
    guard = EgressGuard((ip_network("127.0.0.0/8"),))
    settings = DeliverySettings(max_connections=10_000)
    try:
        async with HttpClient(guard, settings) as client:
            yield HttpMediator(client, Breakers(clock), clock, Warnings(clock).add, settings)
    finally:
        guard.close()


@asynccontextmanager
async def running_router(
    make_source: Callable[[QueueSpec], Source], mediator: Mediator, concurrency: int, connections: int = 1
) -> AsyncIterator[Router]:
    """Run a router with one pool and one queue; deliveries pending at the end are cancelled."""
    clock = SystemClock()
    options = RouterOptions(drain_pools_s=0)
    router = Router(make_source, mediator, clock, Warnings(clock), RouterMetrics(), Breakers(clock), options)
    await router.apply(
        RouterConfiguration((PoolConfiguration(POOL, concurrency),), (QueueSpec("bench", "memory:", connections),))
    )
    try:
        yield router
    finally:
        await router.shut_down()


async def timed(ended: "asyncio.Future[None]", count: int) -> tuple[float, float]:
    """Return messages per second and processor time per message, from now until all are done."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    await ended
    return count / (time.perf_counter() - wall_s), (time.process_time() - cpu_s) / count
