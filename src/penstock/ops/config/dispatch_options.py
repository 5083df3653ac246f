"""Settings of dispatch: the scheduler, jobs and their deliveries, and the API."""

# ruff: noqa: RUF009  `setting` returns a field, as `dataclasses.field` does; it is not shared.

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from penstock.domain.event import Validation
from penstock.ops.config import kinds
from penstock.ops.config.router_options import HttpVersion
from penstock.ops.config.setting import setting

DEFAULT_ENDPOINT = "http://localhost:8080/api/dispatch/process"


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """The dispatch scheduler, which publishes pending jobs to the queue."""

    enabled: bool = setting(
        True,
        kinds.flag(),
        "If false, nothing is published: schedulers only answer their probes, and Spark leaves dispatch out.",
    )
    queue: str = setting(
        "",
        kinds.line(),
        "URI of the queue that jobs are published to; `serve scheduler --queue` takes precedence.",
        secret=True,
    )
    endpoint: str = setting(
        DEFAULT_ENDPOINT,
        kinds.line(),
        "URL to which the router sends jobs to be processed. `serve dispatch` and `up` use their own instead of the "
        "default.",
    )
    queue_per_pool: bool = setting(
        True,
        kinds.flag(),
        "A queue for each pool, named after `scheduler.queue` and created on demand, so that a full pool stops only "
        "its own deliveries. If false, all pools share one queue: for brokers whose queues are made by configuration.",
    )
    pool: str = setting("DISPATCH-POOL", kinds.line(), "Router pool of jobs without one.")
    poll_interval_s: float = setting(
        5.0,
        kinds.number(0.1, 3600),
        "Time between polls for pending jobs. New jobs and due jobs also cause a poll.",
    )
    batch_size: int = setting(20, kinds.integer(1, 10_000), "Jobs per poll when there is no backlog.")
    max_batch_size: int = setting(5_000, kinds.integer(1, 10_000), "Jobs per poll, at most, when there is a backlog.")
    max_concurrent_groups: int = setting(
        10,
        kinds.integer(1, 10_000),
        "Groups published concurrently; it grows with the batches under a backlog.",
    )
    jobs_per_lane: int = setting(
        10,
        kinds.integer(1, 10_000),
        "Jobs of one ordered group in the queue or in delivery at once; the others wait in the database.",
    )
    claim_lease_s: float = setting(
        30.0,
        kinds.number(1, 3600),
        "Time until the jobs of a crashed scheduler are published again.",
    )
    stale_after_s: float = setting(
        900.0,
        kinds.number(1, 604_800),
        "After this time in the queue, a job is published again if its message is gone.",
    )
    stale_poll_s: float = setting(60.0, kinds.number(1, 86_400), "Time between polls for lost jobs.")
    stale_batch_size: int = setting(100, kinds.integer(1, 10_000), "Lost jobs per poll, at most.")
    archive_after_s: float = setting(
        86_400.0, kinds.number(60, 31_536_000), "Finished jobs are archived after this time."
    )
    keep_archive_s: float = setting(
        7_776_000.0,
        kinds.number(3600, 315_360_000),
        "Archived jobs, attempts and events older than this are deleted, by whole months.",
    )
    standby: str = setting(
        "",
        kinds.line(),
        "Hot standby, so that one of several schedulers works: sql (a lease in the jobs database) or redis://…; empty "
        "is off.",
        secret=True,
    )
    lease_ttl_s: float = setting(
        30.0, kinds.number(1, 3600), "Time until the lease of a leader that does not renew it expires."
    )
    lease_renew_s: float = setting(10.0, kinds.number(0.1, 1200), "Time between renewals of the leader's lease.")

    @property
    def chosen_endpoint(self) -> str:
        """The endpoint if one was chosen; empty for the default."""
        return "" if self.endpoint == DEFAULT_ENDPOINT else self.endpoint


class FanOutBy(StrEnum):
    """What creates the jobs of an event."""

    INLINE = "inline"
    PIPELINE = "pipeline"


@dataclass(frozen=True, kw_only=True)
class JobsOptions:
    """Dispatch jobs: settings of API, scheduler and deliveries to subscribers."""

    auth_secret: str = setting(
        "",
        kinds.line(),
        "Signs the tokens with which the scheduler's pointers authenticate to the process endpoint; 16 characters or "
        "more, the same for all users of a database. If empty, a file in the data directory contains one.",
        secret=True,
    )
    previous_auth_secret: str = setting(
        "", kinds.line(), "Accepted in addition to `jobs.auth_secret` while one replaces the other.", secret=True
    )
    encryption_keys: str = setting(
        "",
        kinds.line(),
        "Keys that encrypt signing secrets and header values of subscriptions and jobs in the database: 32 bytes in "
        "base64 (`openssl rand -base64 32`), the same for all users of a database; give them in the environment. Of "
        "several, separated by commas, the first encrypts and the others still decrypt.",
        secret=True,
    )
    encryption_key_file: str = setting(
        "", kinds.line(), "File with such keys, one a line, instead of `jobs.encryption_keys` or after them."
    )
    topics: str = setting(
        "",
        kinds.line(),
        "Address (host:port) of the Pub/Sub server whose topics feed events, are targets and receive dead letters; "
        "`penstock up` has one.",
    )
    fan_out: FanOutBy = setting(
        FanOutBy.INLINE,
        kinds.choice(FanOutBy),
        "inline: a publisher is answered when the event and its jobs are stored. pipeline: when the event is stored; "
        "`penstock pipeline fan-out` creates the jobs.",
    )
    unknown_event_types: Validation = setting(
        Validation.OFF,
        kinds.choice(Validation),
        "What becomes of a published event whose type is not in the catalogue (`penstock event-types`): it is accepted "
        "(off), accepted with a warning in the receipt (warn), or refused (reject).",
    )
    connect_timeout_s: float = setting(10.0, kinds.number(0.1, 600), "Time to connect to a subscriber.")
    http_version: HttpVersion = setting(
        HttpVersion.HTTP_2, kinds.choice(HttpVersion), "The newest version of HTTP used for subscribers."
    )


@dataclass(frozen=True, kw_only=True)
class ApiOptions:
    """The API of jobs, events and subscriptions, and the commands that use it."""

    token: str = setting(
        "",
        kinds.line(),
        "Token with all rights, which callers of the API send as `Authorization: Bearer`. Without it and without "
        "`api.keys` the API listens on loopback only. The commands on this machine send it too.",
        secret=True,
    )
    keys: str = setting(
        "",
        kinds.line(),
        "File of API keys with roles (admin, publisher, viewer), created by `penstock keys create`; read again when "
        "it changes. The router's API accepts them too.",
    )
    endpoint: str = setting(
        "http://127.0.0.1:8080",
        kinds.line(),
        "URL of the API that `penstock publish`, `jobs`, `subscriptions` and `pools` use.",
    )
    router: str = setting(
        "http://127.0.0.1:8081",
        kinds.line(),
        "Router that the web page shows, called with `router.api_token` or `api.token`; empty if there is none.",
    )
    queues: str = setting(
        "http://127.0.0.1:9324",
        kinds.line(),
        "SQS server of `sqs:` targets, which the web page shows; called with AWS's credentials if there are any; empty "
        "if there is none.",
    )
    portal_frames: str = setting(
        "",
        kinds.origins(),
        "Origins of pages that may show the customers' portal in a frame, such as `https://shop.example`, separated by "
        "spaces; none unless given.",
    )
    pipeline: str = setting(
        "http://127.0.0.1:8083",
        kinds.line(),
        "Pipeline (`penstock pipeline run`) that the web page shows; empty if there is none.",
    )

    @property
    def key_file(self) -> Path | None:
        """Return the file of keys, if there is one."""
        return Path(self.keys).expanduser() if self.keys else None
