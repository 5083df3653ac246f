"""One API process: everything put together, and served until a signal."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from penstock.config.tree import HttpVersion
from penstock.core.clock import Clock
from penstock.core.egress import Network
from penstock.core.ids import TsidFactory
from penstock.delivery.breakers import Breakers
from penstock.delivery.egress import EgressGuard
from penstock.delivery.http.client import HttpClient
from penstock.delivery.http.settings import DeliverySettings
from penstock.jobs.api.app import JobsParts, jobs_app
from penstock.jobs.api.subscription_bodies import LONGEST_TIMEOUT_S
from penstock.jobs.auth_token import AuthTokens
from penstock.jobs.dead_letters import DeadLetters, NoDeadLetters
from penstock.jobs.delivery import Courier
from penstock.jobs.model_subscription import DEFAULT_DISPATCH_POOL
from penstock.jobs.process import Processor
from penstock.jobs.process_metrics import ProcessMetrics
from penstock.jobs.repository import JobRepository
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.server import HttpServer, serve_until_signal


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API listens, and how it delivers."""

    host: str = "127.0.0.1"
    port: int = 8080
    secrets: tuple[bytes, ...]
    api_token: str = ""
    queue_uri: str = ""
    dead_letters: str = ""
    default_pool: str = DEFAULT_DISPATCH_POOL
    connect_timeout_s: float = 10.0
    http_version: HttpVersion = HttpVersion.HTTP_2
    egress_allow: tuple[Network, ...] = ()

    def __repr__(self) -> str:
        # Without the secrets, which must not come into a log.
        return f"ApiSettings({self.host}:{self.port})"


async def serve_api(repository: JobRepository, clock: Clock, ids: TsidFactory, settings: ApiSettings) -> None:
    """Serve until SIGINT or SIGTERM."""
    async with api_server(repository, clock, ids, settings) as server:
        await serve_until_signal(server)


@asynccontextmanager
async def api_server(
    repository: JobRepository,
    clock: Clock,
    ids: TsidFactory,
    settings: ApiSettings,
    metrics: Metrics | None = None,
    dead_letters: DeadLetters | None = None,
) -> AsyncIterator[HttpServer]:
    """The server on an opened repository, not yet listening; both are closed at the end."""
    metrics = metrics or Metrics("api")
    await repository.open(clock.now_ms())
    try:
        async with _courier(settings, clock) as courier, _dead_letters(settings) as topics:
            processor = Processor(
                repository, courier, dead_letters or topics, ProcessMetrics(metrics), clock, node_name()
            )
            parts = JobsParts(
                repository=repository,
                courier=courier,
                processor=processor,
                tokens=AuthTokens(settings.secrets),
                clock=clock,
                new_id=lambda: ids.next_id(clock.now_ms()),
                metrics=metrics,
                api_token=settings.api_token,
                queue_uri=settings.queue_uri,
                default_pool=settings.default_pool,
            )
            yield HttpServer(jobs_app(parts), settings.host, settings.port, credentials_set=bool(settings.api_token))
    finally:
        await repository.close()


@asynccontextmanager
async def _dead_letters(settings: ApiSettings) -> AsyncIterator[DeadLetters]:
    if not settings.dead_letters:
        yield NoDeadLetters()
        return
    from penstock.jobs.dead_letters_pubsub import PubsubDeadLetters

    async with PubsubDeadLetters(settings.dead_letters) as dead_letters:
        yield dead_letters


def node_name() -> str:
    """This process, as leases name it."""
    return f"api {socket.gethostname()} {os.getpid()}"


@asynccontextmanager
async def _courier(settings: ApiSettings, clock: Clock) -> AsyncIterator[Courier]:
    delivery = DeliverySettings(
        # Each subscription has a time-out of its own; this one only ends what escaped it.
        request_timeout_s=LONGEST_TIMEOUT_S,
        connect_timeout_s=settings.connect_timeout_s,
        http_version=settings.http_version,
    )
    guard = EgressGuard(settings.egress_allow)
    try:
        async with HttpClient(guard, delivery) as client:
            yield Courier(client, Breakers(clock), clock)
    finally:
        guard.close()
