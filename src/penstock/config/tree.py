"""The tree of settings. To add one: add a field here (or a section and its line in `Config`); nothing else.

Loading, `penstock config init` and docs/reference/configuration.md all follow from this file. Units are in
names: `_s`, `_bytes`, `_messages`.
"""

# ruff: noqa: RUF009  `setting` makes a field, as `dataclasses.field` does; its result is not shared.

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from penstock.config import kinds
from penstock.config.ports import PortSettings
from penstock.config.setting import setting
from penstock.core.response import ClientErrors

_MOST = 2**53 - 1  # the largest whole number that JSON carries exactly


class Durability(StrEnum):
    """When a send or a delete counts as done."""

    FSYNC = "fsync"
    PROCESS_CRASH_ONLY = "survives-process-crash-only"


class LogFormat(StrEnum):
    """How log lines look."""

    AUTO = "auto"
    JSON = "json"
    HUMAN = "human"


class LogLevel(StrEnum):
    """The least serious log line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where messages are kept, and how surely."""

    dir: Path = setting(
        Path("penstock-data"),
        kinds.directory(),
        "Directory of the embedded database and the queues; made if it is not there.",
    )
    durability: Durability = setting(
        Durability.FSYNC,
        kinds.choice(Durability),
        "fsync: a caller is answered when its write is on disk. survives-process-crash-only: faster, but a "
        "power cut or a crash of the machine can lose writes that were answered.",
    )
    database: str = setting(
        "", kinds.database_url(), "PostgreSQL database; empty means an SQLite database in `data.dir`."
    )


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """The REST API and the web page."""

    host: str = setting(
        "127.0.0.1",
        kinds.host(),
        "Address to listen on. One that other machines reach is refused until `api.token` or `api.keys` is set.",
    )
    port: int = setting(8080, kinds.integer(0, 65535), "Port to listen on; 0 takes a free one.")


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """How much of each partition's backlog stays in memory."""

    window_messages: int = setting(
        10_000, kinds.integer(1, 10_000_000), "Messages per partition whose bodies are in memory."
    )
    lookahead_messages: int = setting(
        120_000,
        kinds.integer(1, 100_000_000),
        "Messages per partition looked through for a group that is not blocked.",
    )
    window_bytes: int = setting(
        67_108_864, kinds.integer(1_048_576, _MOST), "Bytes of bodies per partition that are in memory."
    )


@dataclass(frozen=True, kw_only=True)
class SqsSettings:
    """The SQS-compatible server."""

    default_partitions: int = setting(
        8,
        kinds.power_of_two(32),
        "Partitions of a FIFO queue that has AWS's high-throughput settings and names no PartitionCount.",
    )
    databases: tuple[str, ...] = setting(
        (),
        kinds.named_databases(),
        "Further databases that partitions can be placed in (`serve sqs --fifo-partition-map`).",
    )


class HttpVersion(StrEnum):
    """The newest version of HTTP that deliveries speak; a server that knows only 1.1 is spoken to in 1.1."""

    HTTP_2 = "HTTP_2"
    HTTP_1_1 = "HTTP_1_1"


@dataclass(frozen=True, kw_only=True)
class RouterOptions:
    """The message router: where its configuration comes from, and its limits."""

    enabled: bool = setting(True, kinds.flag(), "Off: the router starts, answers its API, and consumes nothing.")
    config: tuple[str, ...] = setting(
        (),
        kinds.places(),
        "URLs or files (JSON, TOML) of pools and queues; of what two of them define, the first holds. "
        "`serve router --config` and MESSAGE_ROUTER_CONFIG_URL go before it.",
    )
    initial_delay_s: float = setting(
        2.0, kinds.number(0, 3600), "Wait before the first sync of the configuration, unless all of it is in files."
    )
    sync_interval_s: float = setting(300.0, kinds.number(1, 86_400), "Time between syncs of the configuration.")
    sync_attempts: int = setting(12, kinds.integer(1, 1000), "Attempts of one sync before it has failed.")
    sync_retry_s: float = setting(5.0, kinds.number(0, 3600), "Wait between the attempts of one sync.")
    max_pools: int = setting(10_000, kinds.integer(1, 1_000_000), "Pools there may be; more are not made.")
    pool_warning_threshold: int = setting(
        5_000, kinds.integer(1, 1_000_000), "Number of pools from which on there is a warning."
    )
    sqs_max_messages: int = setting(10, kinds.integer(1, 10), "Messages that one poll of an SQS queue asks for.")
    sqs_wait_s: int = setting(20, kinds.integer(0, 20), "Time that a poll of an SQS queue waits for messages.")
    sqs_timeout_s: float = setting(25.0, kinds.number(1, 300), "Time after which a call to SQS has failed.")
    connect_timeout_s: float = setting(30.0, kinds.number(0.1, 3600), "Time to connect to an endpoint.")
    request_timeout_s: float = setting(900.0, kinds.number(0.1, 43_200), "Time for an endpoint to answer.")
    http_version: HttpVersion = setting(
        HttpVersion.HTTP_2, kinds.choice(HttpVersion), "The newest version of HTTP that deliveries speak."
    )
    client_errors: ClientErrors = setting(
        ClientErrors.ACK,
        kinds.choice(ClientErrors),
        "What a 4xx answer does: ack removes the message and warns, retry gives it back. "
        "408, 425 and 429 are always retried.",
    )
    consumer_health_s: float = setting(
        60.0, kinds.number(1, 3600), "A consumer that has not polled for so long is replaced."
    )
    stop_consumers_s: float = setting(25.0, kinds.number(0, 3600), "At shut-down, time for consumers to stop.")
    drain_pools_s: float = setting(30.0, kinds.number(0, 43_200), "At shut-down, time for deliveries to end.")
    test_endpoints: bool = setting(
        False, kinds.flag(), "Serve /api/test/…: endpoints that answer fast, slowly, or with errors."
    )
    api_token: str = setting(
        "",
        kinds.line(),
        "Token that callers of the router's API give as `Authorization: Bearer`, with all rights; unless given, "
        "`api.token`. Without a token and without `api.keys` the router listens on loopback only.",
        secret=True,
    )


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


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """The data pipeline on Spark."""

    master: str = setting(
        "local[*]",
        kinds.line(),
        "Where Spark runs: local[*] (this machine, all cores), spark://HOST:PORT, yarn or k8s://…; `--master` goes "
        "before it.",
    )
    conf: tuple[str, ...] = setting(
        (), kinds.pairs(), "Further settings of Spark's; `--conf KEY=VALUE` goes before them."
    )
    ui: bool = setting(False, kinds.flag(), "Serve Spark's own web page, on port 4040 unless `pipeline.conf` says.")
    checkpoint: str = setting(
        "",
        kinds.line(),
        "Directory or URL where streaming jobs write down how far they are; on a cluster one that all its machines "
        "reach. Empty: pipeline/checkpoint in `data.dir`.",
    )
    lake: str = setting(
        "",
        kinds.line(),
        "Directory or URL of the delivery facts; on a cluster one that all its machines reach. Empty: lake in "
        "`data.dir`.",
    )
    trigger_ms: int = setting(
        100,
        kinds.integer(0, 3_600_000),
        "Time from the start of one micro-batch to the start of the next, at least; 0 is at once.",
    )
    max_rows_per_batch: int = setting(
        100_000, kinds.integer(1, 100_000_000), "Rows that one micro-batch takes, at most."
    )
    stop_s: float = setting(30.0, kinds.number(0, 3600), "At shut-down, time for the running micro-batches to end.")


@dataclass(frozen=True, kw_only=True)
class TraceSettings:
    """OpenTelemetry traces from publishing to the webhook; they need `pip install penstock[traces]`."""

    endpoint: str = setting(
        "",
        kinds.line(),
        "Where a collector takes spans by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; empty is off.",
        secret=True,
    )
    ratio: float = setting(
        1.0, kinds.number(0, 1), "Share of the traces that begin here to keep; others are as their publisher says."
    )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What is logged, and how; logs go to stderr."""

    format: LogFormat = setting(
        LogFormat.AUTO, kinds.choice(LogFormat), "auto: human on a terminal, JSON lines elsewhere."
    )
    level: LogLevel = setting(LogLevel.INFO, kinds.choice(LogLevel), "The least serious line that is written.")


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """This machine among others."""

    id: int | None = setting(
        None,
        kinds.optional_integer(0, 1023),
        "The part of message ids that makes them unique across machines: give each its own. "
        "Unset is right for one machine.",
    )


@dataclass(frozen=True, kw_only=True)
class EgressSettings:
    """Where deliveries may go."""

    allow: tuple[kinds.Network, ...] = setting(
        (),
        kinds.networks(),
        "Loopback, private and link-local networks that subscribers' URLs may reach all the same.",
    )


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of Penstock, validated and frozen."""

    data: DataSettings = field(default_factory=DataSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    ports: PortSettings = field(default_factory=PortSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    sqs: SqsSettings = field(default_factory=SqsSettings)
    router: RouterOptions = field(default_factory=RouterOptions)
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
    jobs: JobsOptions = field(default_factory=JobsOptions)
    api: ApiOptions = field(default_factory=ApiOptions)
    pipeline: PipelineOptions = field(default_factory=PipelineOptions)
    traces: TraceSettings = field(default_factory=TraceSettings)
    log: LogSettings = field(default_factory=LogSettings)
    node: NodeSettings = field(default_factory=NodeSettings)
    egress: EgressSettings = field(default_factory=EgressSettings)
