"""One API process: its parts put together, and served until a signal."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from penstock.client.types import LONGEST_TIMEOUT_S
from penstock.cluster import running
from penstock.delivery import Breakers, Courier, DeliverySettings, EgressGuard, HttpClient
from penstock.domain.addresses import Network
from penstock.domain.ids import TsidFactory
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL
from penstock.edge.clock import Clock
from penstock.edge.pause import pause
from penstock.events.api.app import ApiFront, JobsParts, jobs_app
from penstock.events.api.pools import PoolQueueWatch
from penstock.events.process import AuthTokens, DeadLetters, NoDeadLetters, ProcessMetrics, Processor
from penstock.events.store import JobRepository
from penstock.http.auth import KeyFile
from penstock.http.server import HttpServer, serve_until_signal
from penstock.ops.config import FanOutBy, HttpVersion
from penstock.ops.telemetry import Metrics, NoSpans, Spans, open_otlp_spans


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API listens, and how it delivers."""

    host: str = "127.0.0.1"
    port: int = 8080
    secrets: tuple[bytes, ...]
    api_token: str = ""
    api_keys: Path | None = None
    traces_endpoint: str = ""
    traces_ratio: float = 1.0
    queue_uri: str = ""
    dead_letters: str = ""
    default_pool: str = DEFAULT_DISPATCH_POOL
    queue_per_pool: bool = True
    fan_out: FanOutBy = FanOutBy.INLINE
    connect_timeout_s: float = 10.0
    http_version: HttpVersion = HttpVersion.HTTP_2
    egress_allow: tuple[Network, ...] = ()

    def __repr__(self) -> str:
        # Without the secrets, which must not reach a log.
        return f"ApiSettings({self.host}:{self.port})"


async def serve_api(
    repository: JobRepository, clock: Clock, ids: TsidFactory, settings: ApiSettings, front: ApiFront | None = None
) -> None:
    """Serve until SIGINT or SIGTERM."""
    async with api_server(repository, clock, ids, settings, front=front) as server:
        await serve_until_signal(server)


@asynccontextmanager
async def api_server(
    repository: JobRepository,
    clock: Clock,
    ids: TsidFactory,
    settings: ApiSettings,
    metrics: Metrics | None = None,
    dead_letters: DeadLetters | None = None,
    front: ApiFront | None = None,
) -> AsyncIterator[HttpServer]:
    """Return the server on an open repository, not yet listening; both are closed at the end."""
    metrics = metrics or Metrics("api")
    keys = None if settings.api_keys is None else KeyFile(settings.api_keys)
    await repository.open(clock.now_ms())
    try:
        async with (
            _spans(settings) as spans,
            _courier(settings, clock) as courier,
            _dead_letters(settings) as topics,
        ):
            processor = Processor(
                repository, courier, dead_letters or topics, ProcessMetrics(metrics), clock, node_name(), spans
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
                api_keys=keys,
                spans=spans,
                queue_uri=settings.queue_uri,
                default_pool=settings.default_pool,
                queue_per_pool=settings.queue_per_pool,
                fan_out=settings.fan_out,
            )
            has_keys = bool(settings.api_token) or keys is not None
            watch = None if front is None else PoolQueueWatch(repository, front.pools_changed, pause)
            async with running(watch):
                yield HttpServer(jobs_app(parts, front), settings.host, settings.port, credentials_set=has_keys)
    finally:
        await repository.close()


@asynccontextmanager
async def _spans(settings: ApiSettings) -> AsyncIterator[Spans]:
    if not settings.traces_endpoint:
        yield NoSpans()
        return
    spans = open_otlp_spans(settings.traces_endpoint, settings.traces_ratio, "penstock-api")
    try:
        yield spans
    finally:
        # Closing may wait for the collector.
        await asyncio.to_thread(spans.close)


@asynccontextmanager
async def _dead_letters(settings: ApiSettings) -> AsyncIterator[DeadLetters]:
    if not settings.dead_letters:
        yield NoDeadLetters()
        return
    from penstock.events.process import PubsubDeadLetters

    async with PubsubDeadLetters(settings.dead_letters) as dead_letters:
        yield dead_letters


def node_name() -> str:
    """Return the name of this process in leases."""
    return f"api {socket.gethostname()} {os.getpid()}"


@asynccontextmanager
async def _courier(settings: ApiSettings, clock: Clock) -> AsyncIterator[Courier]:
    delivery = DeliverySettings(
        # Each subscription has its own timeout; this one ends only what escaped it.
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
