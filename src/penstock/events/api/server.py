"""One API process: its parts put together, and served until a signal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from penstock.cluster import running
from penstock.delivery import Breakers
from penstock.domain.event import Validation
from penstock.domain.ids import TsidFactory
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL
from penstock.edge.clock import Clock
from penstock.edge.pause import pause
from penstock.events.accept import TopicFeeds
from penstock.events.api.app import ApiFront, JobsParts, jobs_app
from penstock.events.api.health.alerts import AlertRules, AlertWatch
from penstock.events.api.health.watch import HealthCollector, HealthWatch, NoParts
from penstock.events.api.jobs.replay_worker import ReplayWorker
from penstock.events.api.pools import PoolQueueWatch
from penstock.events.fan_out import publisher_for
from penstock.events.portal import PortalTokens
from penstock.events.process import AuthTokens, DeadLetters, ProcessSettings, open_processor
from penstock.events.store import JobRepository
from penstock.http.auth import KeyFile
from penstock.http.server import HttpServer, serve_until_signal
from penstock.ops.config import FanOutBy
from penstock.ops.telemetry import Metrics


class ApiSettings(ProcessSettings, frozen=True, kw_only=True):
    """Where the API listens, and how it delivers."""

    host: str = "127.0.0.1"
    port: int = 8080
    api_token: str = ""
    api_keys: Path | None = None
    queue_uri: str = ""
    default_pool: str = DEFAULT_DISPATCH_POOL
    queue_per_pool: bool = True
    fan_out: FanOutBy = FanOutBy.INLINE
    unknown_event_types: Validation = Validation.OFF
    data_dir: Path | None = None
    """The directory whose disk is watched."""
    alerts: AlertRules = AlertRules()

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
        new_id = partial(_new_id, ids, clock)
        async with open_processor(
            repository, clock, settings, metrics, Breakers(clock), part="api", dead_letters=dead_letters
        ) as process:
            await repository.seal_subscriptions(process.courier.secret_box.sealed_for_rest)
            by_spark = settings.fan_out is FanOutBy.PIPELINE
            others = NoParts() if front is None else front.other_parts(with_pipeline=by_spark)
            health = HealthWatch(repository, process.courier.breakers, clock, others, settings.data_dir)
            metrics.register(HealthCollector(health))
            publisher = publisher_for(settings.fan_out, repository, clock)
            topics = process.topics
            feeds = None if topics is None else TopicFeeds(topics, repository, publisher, new_id, pause)
            parts = JobsParts(
                repository=repository,
                courier=process.courier,
                processor=process.processor,
                tokens=AuthTokens(settings.secrets),
                portal=PortalTokens(repository, settings.secrets, clock),
                clock=clock,
                new_id=new_id,
                metrics=metrics,
                health=health,
                replays=ReplayWorker(repository, clock),
                api_token=settings.api_token,
                api_keys=keys,
                spans=process.spans,
                queue_uri=settings.queue_uri,
                default_pool=settings.default_pool,
                queue_per_pool=settings.queue_per_pool,
                fan_out=settings.fan_out,
                unknown_event_types=settings.unknown_event_types,
                feeds=feeds,
                messages=process.messages,
            )
            has_keys = bool(settings.api_token) or keys is not None
            watch = None if front is None else PoolQueueWatch(repository, front.pools_changed, pause)
            alerts = AlertWatch(repository, health, settings.alerts, clock, parts.new_id, pause)
            async with running(watch), running(alerts), running(feeds), running(parts.replays):
                yield HttpServer(jobs_app(parts, front), settings.host, settings.port, credentials_set=has_keys)
    finally:
        await repository.close()


def _new_id(ids: TsidFactory, clock: Clock) -> str:
    return ids.next_id(clock.now_ms())
