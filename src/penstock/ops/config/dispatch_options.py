"""Settings of dispatch: the scheduler, jobs and their deliveries, and the API."""

# ruff: noqa: RUF009  `setting` makes a field, as `dataclasses.field` does; its result is not shared.

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from penstock.ops.config import kinds
from penstock.ops.config.router_options import HttpVersion
from penstock.ops.config.setting import setting


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """The dispatch scheduler: from pending jobs to the queue."""

    enabled: bool = setting(True, kinds.flag(), "Off: the scheduler starts, answers its probes, and publishes nothing.")
    queue: str = setting(
        "",
        kinds.line(),
        "URI of the queue that jobs are published to; `serve scheduler --queue` goes before it.",
        secret=True,
    )
    endpoint: str = setting(
        "http://localhost:8080/api/dispatch/process", kinds.line(), "Where the router brings jobs to be processed."
    )
    pool: str = setting("DISPATCH-POOL", kinds.line(), "Router pool of jobs that name none.")
    poll_interval_s: float = setting(
        5.0,
        kinds.number(0.1, 3600),
        "Time between polls for pending jobs. It is also called when jobs are made or come due.",
    )
    batch_size: int = setting(20, kinds.integer(1, 10_000), "Jobs that a poll claims when there is little to do.")
    max_batch_size: int = setting(
        5_000, kinds.integer(1, 10_000), "Jobs that a poll claims at most, when there is a backlog."
    )
    max_concurrent_groups: int = setting(
        10,
        kinds.integer(1, 10_000),
        "Groups that are published at once; under a backlog it grows as the batches do.",
    )
    claim_lease_s: float = setting(
        30.0,
        kinds.number(1, 3600),
        "How long the jobs of a scheduler that crashed stay untouched before they are published again.",
    )
    stale_after_s: float = setting(
        900.0, kinds.number(1, 604_800), "A queued job that nobody has heard of for so long is published again."
    )
    stale_poll_s: float = setting(60.0, kinds.number(1, 86_400), "Time between polls for such jobs.")
    stale_batch_size: int = setting(100, kinds.integer(1, 10_000), "Jobs that such a poll takes at most.")
    archive_after_s: float = setting(
        86_400.0, kinds.number(60, 31_536_000), "A job that was finished so long ago goes to the archive."
    )
    keep_archive_s: float = setting(
        7_776_000.0,
        kinds.number(3600, 315_360_000),
        "Archived jobs, attempts and events older than this are dropped, by the month.",
    )
    standby: str = setting(
        "",
        kinds.line(),
        "Hot standby, so that of several schedulers one works: sql (a lease in the jobs database) or redis://…; "
        "empty is off.",
        secret=True,
    )
    lease_ttl_s: float = setting(30.0, kinds.number(1, 3600), "How long a leader leads without renewing its lease.")
    lease_renew_s: float = setting(10.0, kinds.number(0.1, 1200), "How often a leader renews its lease.")


class FanOutBy(StrEnum):
    """Who makes the jobs that an event causes."""

    INLINE = "inline"
    PIPELINE = "pipeline"


@dataclass(frozen=True, kw_only=True)
class JobsOptions:
    """Dispatch jobs: what the API and the scheduler share, and how deliveries to subscribers are made."""

    auth_secret: str = setting(
        "",
        kinds.line(),
        "Signs the tokens by which the process endpoint knows the scheduler's pointers; 16 characters or more, the "
        "same for all of a database. Empty: a file in the data directory holds one.",
        secret=True,
    )
    previous_auth_secret: str = setting(
        "", kinds.line(), "Accepted beside `jobs.auth_secret`, while one replaces the other.", secret=True
    )
    dead_letters: str = setting(
        "",
        kinds.line(),
        "Address (host:port) of the Pub/Sub server whose topics take what is given up; `penstock up` has one.",
    )
    fan_out: FanOutBy = setting(
        FanOutBy.INLINE,
        kinds.choice(FanOutBy),
        "inline: who publishes is answered when an event and its jobs are kept. pipeline: when the event is; "
        "`penstock pipeline fan-out` makes the jobs.",
    )
    connect_timeout_s: float = setting(10.0, kinds.number(0.1, 600), "Time to connect to a subscriber.")
    http_version: HttpVersion = setting(
        HttpVersion.HTTP_2, kinds.choice(HttpVersion), "The newest version of HTTP that subscribers are spoken to in."
    )


@dataclass(frozen=True, kw_only=True)
class ApiOptions:
    """The API of jobs, events and subscriptions, and the commands that ask it."""

    token: str = setting(
        "",
        kinds.line(),
        "Token that callers of the API give as `Authorization: Bearer`, with all rights; without it and without "
        "`api.keys` the API listens on loopback only. The commands of this machine give it too.",
        secret=True,
    )
    keys: str = setting(
        "",
        kinds.line(),
        "File of API keys with roles (admin, publisher, viewer), made by `penstock keys create`; read anew when it "
        "changes. The router's API takes them too.",
    )
    endpoint: str = setting(
        "http://127.0.0.1:8080", kinds.line(), "Where `penstock publish`, `jobs`, `subscriptions` and `pools` ask."
    )
    router: str = setting(
        "http://127.0.0.1:8081",
        kinds.line(),
        "Router that the web page shows, asked with `router.api_token` or `api.token`; empty if there is none.",
    )
    queues: str = setting(
        "http://127.0.0.1:9324",
        kinds.line(),
        "SQS server that the web page shows, asked with AWS's credentials if there are any; empty if there is none.",
    )
    pipeline: str = setting(
        "http://127.0.0.1:8083",
        kinds.line(),
        "Pipeline (`penstock pipeline run`) that the web page shows; empty if there is none.",
    )

    @property
    def key_file(self) -> Path | None:
        """The file of keys, if there is one."""
        return Path(self.keys).expanduser() if self.keys else None
