"""A router process: builds the router, serves its API until a signal, and stops without losing messages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from typing import Protocol

from penstock.cluster import LeaseDatabase, Standby, lease_for, running
from penstock.delivery import Answer, Breakers, DeliverySettings, EgressGuard, HttpClient, RequestHead
from penstock.domain.ids import TsidFactory
from penstock.domain.pointer import PROCESS_PATH
from penstock.domain.signing import Signature
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.node import process_ids
from penstock.edge.pause import pause
from penstock.http.server import HttpServer, stop_signal
from penstock.ops.telemetry import Metrics
from penstock.queues import QueueSpec, Source, source_for
from penstock.queues.sqs.client import SqsPolling
from penstock.queues.sqs.watch import SharedServers
from penstock.router.config.configuration import RouterConfiguration
from penstock.router.config.fetch import fetch_configuration
from penstock.router.config.plan import worker_share
from penstock.router.config.sync import ConfigSync
from penstock.router.leadership import AlwaysPrimary, RouterLeadership
from penstock.router.monitoring.app import RouterParts, router_app
from penstock.router.monitoring.warnings import Warnings
from penstock.router.pools.counts import RouterMetrics
from penstock.router.pools.mediator import HttpMediator, Mediator, StagedMediator
from penstock.router.pools.shared_rate import PermitSource
from penstock.router.router import Router
from penstock.router.schedule import PeriodicWork, TaskSchedule, router_tasks
from penstock.router.settings import RouterSettings

LEASE_NAME = "router"


class LocalMediation(Protocol):
    """Delivers some of the messages in the router's own process instead of by HTTP."""

    def mediator(
        self, others: Mediator, breakers: Breakers, metrics: Metrics
    ) -> AbstractAsyncContextManager[StagedMediator]:
        """Return a mediator that leaves all but its own messages to `others`."""
        ...


async def serve_router(
    settings: RouterSettings,
    worker: int = 0,
    leadership: RouterLeadership | None = None,
    local: LocalMediation | None = None,
    permits: PermitSource | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; raise Unavailable if the first configuration cannot be read.

    With `permits`, the rate limits of pools are those of all routers that take their permits there. Worker N of several
    takes its part of the configuration, and listens on the first port plus N.
    """
    clock = SystemClock()
    warnings, metrics = Warnings(clock), RouterMetrics()
    leadership = leadership or AlwaysPrimary()
    breakers, exposed = Breakers(clock), Metrics("router")
    async with (
        _mediator(settings, breakers, clock, warnings) as by_http,
        nullcontext(by_http) if local is None else local.mediator(by_http, breakers, exposed) as mediator,
        nullcontext() if permits is None else aclosing(permits),
    ):
        router = Router(_sources(settings), mediator, clock, warnings, metrics, breakers, settings, permits)
        sync = ConfigSync(settings, router, warnings, leadership, clock, pause, _fetch_for(settings.workers, worker))
        parts = RouterParts(
            settings=settings,
            router=router,
            sync=sync,
            warnings=warnings,
            metrics=metrics,
            exposed=exposed,
            leadership=leadership,
            new_id=_new_ids(process_ids(settings.node_id), clock),
            own_url=lambda: server.url,
        )
        port = settings.port + worker if settings.port else 0
        server = HttpServer(router_app(parts), settings.host, port, credentials_set=settings.asks_for_keys)
        await _run(server, router, sync, test_endpoints=settings.test_endpoints)


async def _run(server: HttpServer, router: Router, sync: ConfigSync, *, test_endpoints: bool) -> None:
    stop = stop_signal(server)
    async with server:
        server.announce(open_to_deliveries=test_endpoints)
        tasks = asyncio.create_task(run_tasks(router, sync))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((tasks, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        tasks.cancel()
        results = await asyncio.gather(tasks, return_exceptions=True)
        await router.shut_down()
    if isinstance(results[0], Exception):
        raise results[0]


async def run_tasks(router: PeriodicWork, sync: ConfigSync) -> None:
    """Sync the configuration and run the periodic tasks until cancelled (ROUTER-TASK-1)."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(sync.run())
            group.create_task(TaskSchedule(router_tasks(router), lambda: sync.state.initialised, pause).run())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


@asynccontextmanager
async def _mediator(
    settings: RouterSettings, breakers: Breakers, clock: SystemClock, warnings: Warnings
) -> AsyncIterator[HttpMediator]:
    delivery = DeliverySettings(
        request_timeout_s=settings.request_timeout_s,
        connect_timeout_s=settings.connect_timeout_s,
        http_version=settings.http_version,
        client_errors=settings.client_errors,
    )
    guard, process_guard = (
        EgressGuard(settings.egress_allow, deny_ports=ports) for ports in (settings.egress_deny_ports, ())
    )
    try:
        async with HttpClient(guard, delivery) as client, HttpClient(process_guard, delivery) as process:
            yield HttpMediator(_PointerClient(client, process), breakers, clock, warnings.add, delivery)
    finally:
        guard.close()
        process_guard.close()


class _PointerClient:
    """Sends pointers; those to a process endpoint may go to a part of this installation, which checks their tokens."""

    def __init__(self, others: HttpClient, process: HttpClient) -> None:
        self._others = others
        self._process = process

    def send(self, head: RequestHead, body: bytes, signature: Signature | None = None) -> Coroutine[None, None, Answer]:
        """Return the coroutine of a request."""
        client = self._process if head.target.path == PROCESS_PATH else self._others
        return client.send(head, body, signature)


def _sources(settings: RouterSettings) -> Callable[[QueueSpec], Source]:
    polling = SqsPolling(settings.sqs_max_messages, settings.sqs_wait_s, settings.sqs_timeout_s)
    servers = SharedServers()
    return lambda queue: source_for(queue, polling, servers)


def _fetch_for(workers: int, worker: int) -> Callable[[Sequence[str]], Awaitable[RouterConfiguration]]:
    """Return the function that fetches this worker's part of the configuration."""

    def can_share(queue: QueueSpec) -> bool:
        source = source_for(queue)
        return source.ordered and not source.exclusive

    async def fetch(places: Sequence[str]) -> RouterConfiguration:
        whole = await fetch_configuration(places)
        return whole if workers == 1 else worker_share(whole, worker, workers, can_share)

    return fetch


def _new_ids(ids: TsidFactory, clock: SystemClock) -> Callable[[], str]:
    return lambda: ids.next_id(clock.now_ms())


async def serve_standby_router(
    settings: RouterSettings,
    standby: str,
    database: LeaseDatabase,
    clock: Clock,
    ids: TsidFactory,
    *,
    ttl_s: float,
    renew_s: float,
    local: LocalMediation | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, consuming while this router leads; then release leadership immediately."""
    await database.open(clock.now_ms())
    try:
        async with lease_for(standby, database, clock, LEASE_NAME, ids.next_id(clock.now_ms())) as lease:
            leadership = None if lease is None else Standby(lease, ttl_s=ttl_s, renew_s=renew_s)
            async with running(leadership):
                await serve_router(settings, leadership=leadership, local=local)
    finally:
        await database.close()
