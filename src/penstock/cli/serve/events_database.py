"""Where jobs are kept, as the command line and the configuration say; shared by the parts that use them."""

from datetime import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.cli.options import database_url
from penstock.delivery import encryption_keys
from penstock.edge.clock import SystemClock
from penstock.edge.private_files import private_directory
from penstock.events.api import AlertRules, ApiSettings, QuietHours
from penstock.events.process import LocalProcessing, ProcessSettings, auth_secrets
from penstock.events.store import JobRepository
from penstock.events.store.sqlite import sqlite_repository
from penstock.ops.config import AlertSettings, Config


class JobsDatabase(NamedTuple):
    """The repository, not opened yet, and the secrets that go with it."""

    repository: JobRepository
    secrets: tuple[bytes, ...]


def jobs_database(config: Config, data: Path | None, database: str | None, *, listen: bool) -> JobsDatabase:
    """Return the repository of jobs, and the secrets that sign their tokens."""
    repository = jobs_repository(config, data, database, listen=listen)
    directory = None if database_url(config, data, database) else data or config.data.dir
    return JobsDatabase(repository, auth_secrets(config.jobs, directory))


def jobs_repository(config: Config, data: Path | None, database: str | None, *, listen: bool) -> JobRepository:
    """Return the repository of jobs, not opened yet: PostgreSQL, or a file in the data directory."""
    if url := database_url(config, data, database):
        # Imported when it is used: the driver is a tenth of the start of a part.
        from penstock.events.store.postgres import postgres_repository

        return postgres_repository(url, listen=listen)
    directory = data or config.data.dir
    private_directory(directory)
    return sqlite_repository(directory / "jobs.db", durability=config.data.durability)


def api_settings(
    config: Config,
    secrets: tuple[bytes, ...],
    *,
    host: str,
    port: int,
    queue_uri: str,
    topics: str = "",
    queues: str = "",
    data: Path | None = None,
) -> ApiSettings:
    """Return the API's settings from the configuration."""
    return ApiSettings(
        host=host,
        port=port,
        api_token=config.api.token,
        api_keys=config.api.key_file,
        queue_uri=queue_uri,
        default_pool=config.scheduler.pool,
        queue_per_pool=config.scheduler.queue_per_pool,
        fan_out=config.jobs.fan_out,
        unknown_event_types=config.jobs.unknown_event_types,
        data_dir=data or config.data.dir,
        alerts=_alert_rules(config.alerts),
        **msgspec.structs.asdict(process_settings(config, secrets, topics, queues)),
    )


def _alert_rules(settings: AlertSettings) -> AlertRules:
    begin, _, end = (settings.quiet_hours or "00:00-00:00").partition("-")
    quiet = QuietHours(time.fromisoformat(begin), time.fromisoformat(end), settings.time_zone)
    return AlertRules(check_s=settings.check_s, repeat_s=settings.repeat_s, quiet=quiet)


def process_settings(config: Config, secrets: tuple[bytes, ...], topics: str, queues: str = "") -> ProcessSettings:
    """Return how jobs are delivered, from the configuration."""
    return ProcessSettings(
        secrets=secrets,
        traces_endpoint=config.traces.endpoint,
        traces_ratio=config.traces.ratio,
        topics=topics or config.jobs.topics,
        queues=queues or config.api.queues,
        connect_timeout_s=config.jobs.connect_timeout_s,
        http_version=config.jobs.http_version,
        egress_allow=config.egress.allow,
        egress_deny_ports=config.egress.deny_ports,
        egress_proxy=config.egress.proxy,
        encryption_keys=encryption_keys(config.jobs),
    )


def local_processing(config: Config, data: Path | None, database: str | None, topics: str) -> LocalProcessing:
    """Return what delivers the jobs of a database in the router's process."""
    repository, secrets = jobs_database(config, data, database, listen=False)
    return LocalProcessing(repository, SystemClock(), process_settings(config, secrets, topics))
