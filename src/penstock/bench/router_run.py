"""Runs of a real router inside a benchmark."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from ipaddress import ip_network

from penstock.delivery.breakers import Breakers
from penstock.delivery.egress import EgressGuard
from penstock.delivery.http.client import HttpClient
from penstock.delivery.http.settings import DeliverySettings
from penstock.domain.pointer import MessagePointer, encode_pointer
from penstock.edge.clock import SystemClock
from penstock.ops.config.router_options import RouterOptions
from penstock.queues.open import QueueSpec
from penstock.queues.port import Received, Source
from penstock.router.config.configuration import PoolConfiguration, RouterConfiguration
from penstock.router.monitoring.warnings import Warnings
from penstock.router.pools.counts import RouterMetrics
from penstock.router.pools.mediator import HttpMediator
from penstock.router.pools.pool import Mediator
from penstock.router.router import Router

POOL = "bench"


def pointers(count: int, groups: int, target: str) -> Iterator[Received]:
    """Messages of so many groups by turns, as a queue hands them out."""
    for number in range(count):
        group = f"order-{number % groups}"
        pointer = MessagePointer(
            id=f"0HZXEQ5Y8{number:08}",
            mediation_target=target,
            pool_code=POOL,
            auth_token="bench-token",
            message_group_id=group,
        )
        yield Received(f"b-{number}", encode_pointer(pointer), group, f"handle-{number}")


@asynccontextmanager
async def http_mediator() -> AsyncIterator[HttpMediator]:
    """The mediator as `penstock serve router` makes it, with loopback allowed."""
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
    """A router with one pool and one queue; what is under way at the end is not waited for."""
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
    """Messages a second, and processor time per message, from now until all are done."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    await ended
    return count / (time.perf_counter() - wall_s), (time.process_time() - cpu_s) / count
