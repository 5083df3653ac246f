"""The server as a whole: opens the databases, loads the queues, serves HTTP and closes everything in order."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from penstock.domain.ids import TsidFactory
from penstock.edge.clock import Clock, stopwatch
from penstock.edge.pause import pause
from penstock.engine import AsyncShell, Ledger, Store, Window, while_owned
from penstock.http.api import CheckResult, Probes
from penstock.http.server import App, HttpServer, serve_until_signal
from penstock.ops.telemetry import Metrics
from penstock.sqs.app import SqsApp
from penstock.sqs.auth.credentials import Credentials
from penstock.sqs.front import LocalFront
from penstock.sqs.metrics import SqsMetrics
from penstock.sqs.queue.other_shards import OtherShards
from penstock.sqs.queue.placement import OWN_DATABASE, PartitionOwnership
from penstock.sqs.service import ServiceSettings, SqsService, stored_dedup_window_ms, stored_policy

_SWEEP_S = 10.0


class SqsServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The server's address and its settings."""

    host: str = "127.0.0.1"
    port: int = 9324
    service: ServiceSettings = ServiceSettings()
    window: Window = Window()


@asynccontextmanager
async def open_service(
    stores: Mapping[str, Store],
    clock: Clock,
    ids: TsidFactory,
    settings: SqsServerSettings,
    ownership: PartitionOwnership | None = None,
    metrics: SqsMetrics | None = None,
    others: OtherShards | None = None,
) -> AsyncIterator[SqsService]:
    """Open the databases and load the queues; on exit, finish every write."""
    shells: dict[str, AsyncShell] = {}
    try:
        for name, store in stores.items():
            ledger = Ledger(store, ids, settings.window)
            await asyncio.to_thread(ledger.catalog.open, clock.now_ms(), stored_policy, stored_dedup_window_ms)
            shells[name] = AsyncShell(ledger, clock)
            await asyncio.to_thread(ledger.restore_leases, clock.now_ms())
            shells[name].kick()
        service = SqsService(shells, clock, ids, settings.service, pause, ownership, metrics, others)
        await service.open()
    except BaseException:
        for shell in shells.values():
            await shell.close()
        raise
    chores = [asyncio.create_task(_sweep(service)), asyncio.create_task(service.reap())]
    try:
        yield service
    finally:
        for chore in chores:
            chore.cancel()
        await asyncio.wait(chores)
        await service.close()


def sqs_app(service: SqsService, credentials: Credentials | None) -> App:
    """Return the HTTP app with its probes."""
    metrics = Metrics("sqs")
    metrics.register(service.metrics)

    def writes() -> CheckResult:
        failure = service.last_failure()
        return CheckResult(failure is None, failure or "commits succeed")

    async def lease() -> CheckResult:
        service.require_owned()
        return CheckResult(True, "no other process serves these queues")

    return SqsApp(
        LocalFront(service),
        credentials,
        stopwatch,
        Probes(metrics, {"store": writes, "lease": lease}, fatal=service.lost),
    )


async def serve_sqs(
    stores: Mapping[str, Store],
    clock: Clock,
    ids: TsidFactory,
    settings: SqsServerSettings,
    credentials: Credentials | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; then answer waiting receives with no messages and finish writes."""
    assert OWN_DATABASE in stores
    async with open_service(stores, clock, ids, settings) as service:
        app = sqs_app(service, credentials)
        server = HttpServer(app, settings.host, settings.port, credentials_set=credentials is not None)
        await while_owned(serve_until_signal(server, service.answer_waiters), stores.values(), service.answer_waiters)


async def _sweep(service: SqsService) -> None:
    """Drop idle throttle buckets, and look for dead-letter queues that were missing."""
    while True:
        await pause(_SWEEP_S)
        await service.transfers.look()
        service.throttles.sweep(service.clock.now_ms())
