"""The tree of settings. To add a setting, add a field to its section, or a section with its line in `Config`.

Loading, `penstock config init` and docs/reference/configuration.md follow from it. Names contain units: `_s`,
`_bytes`, `_messages`.
"""

# ruff: noqa: RUF009  `setting` returns a field, as `dataclasses.field` does; it is not shared.

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from penstock.ops.config import kinds
from penstock.ops.config.dispatch_options import ApiOptions, JobsOptions, SchedulerOptions
from penstock.ops.config.router_options import RouterOptions
from penstock.ops.config.setting import setting

_PORT = kinds.integer(0, 65535)
_MOST = 2**53 - 1  # the largest integer that JSON represents exactly


class Durability(StrEnum):
    """When a send or a delete is acknowledged."""

    FSYNC = "fsync"
    PROCESS_CRASH_ONLY = "survives-process-crash-only"


class LogFormat(StrEnum):
    """The format of log lines."""

    AUTO = "auto"
    JSON = "json"
    HUMAN = "human"


class LogLevel(StrEnum):
    """The least severe level that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where and how messages are stored."""

    dir: Path = setting(
        Path("penstock-data"),
        kinds.directory(),
        "Directory of the embedded database and the queues; created if it does not exist.",
    )
    durability: Durability = setting(
        Durability.FSYNC,
        kinds.choice(Durability),
        "fsync: a caller is answered when its write is on disk. survives-process-crash-only: faster, but a power "
        "failure or a crash of the machine can lose writes that were acknowledged.",
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
        "Address to listen on. An address that other machines can reach requires `api.token` or `api.keys`.",
    )
    port: int = setting(8080, kinds.integer(0, 65535), "Port to listen on; 0 takes a free one.")


@dataclass(frozen=True, kw_only=True)
class PortSettings:
    """Ports of all parts but the API; 0 takes a free one. A command's option takes precedence over the setting."""

    sqs: int = setting(9324, _PORT, "The SQS server.")
    pubsub: int = setting(8085, _PORT, "The Pub/Sub API.")
    pubsub_probes: int = setting(8086, _PORT, "Health and metrics of the Pub/Sub API.")
    pubsub_nodes: int = setting(8087, _PORT, "Calls that other nodes pass on to the Pub/Sub API of this one.")
    router: int = setting(8081, _PORT, "The router's API.")
    scheduler: int = setting(8082, _PORT, "Health and metrics of the scheduler.")
    pipeline: int = setting(8083, _PORT, "Health, metrics and progress of the pipeline.")


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """How much of each partition's backlog is kept in memory."""

    window_messages: int = setting(
        10_000, kinds.integer(1, 10_000_000), "Messages per partition with bodies in memory."
    )
    lookahead_messages: int = setting(
        120_000,
        kinds.integer(1, 100_000_000),
        "Messages per partition searched for a group that is not blocked.",
    )
    window_bytes: int = setting(67_108_864, kinds.integer(1_048_576, _MOST), "Bytes of bodies in memory per partition.")


class QueueScopes(StrEnum):
    """Which queues a request to the SQS server sees."""

    REQUEST = "request"
    """Those of the region and the account that its credentials name."""
    ONE = "one"
    """All of them, as if there were one region and one account."""


@dataclass(frozen=True, kw_only=True)
class SqsSettings:
    """The SQS-compatible server."""

    scopes: QueueScopes = setting(
        QueueScopes.REQUEST,
        kinds.choice(QueueScopes),
        "Which queues a request sees: those of the region and account of its credentials, or all of them (one); "
        "`serve sqs --scopes` takes precedence.",
    )

    default_partitions: int = setting(
        1,
        kinds.power_of_two(32),
        "Partitions of a FIFO queue with AWS's high-throughput settings and without a PartitionCount; on one machine "
        "more of them cost throughput.",
    )
    recreate_after_s: int = setting(
        0,
        kinds.integer(0, 3600),
        "Seconds after DeleteQueue in which CreateQueue refuses the name with QueueDeletedRecently; AWS has 60. They "
        "are not counted across a restart.",
    )
    trusted_proxies: tuple[kinds.Network, ...] = setting(
        (),
        kinds.networks(),
        "Proxies whose X-Forwarded-Proto and X-Forwarded-Host give the beginning of queue URLs, and the signed host.",
    )
    credentials: str = setting(
        "",
        kinds.line(),
        "File of access keys; requests must then be signed. `serve sqs --credentials` takes precedence.",
    )
    parts_key: str = setting(
        "",
        kinds.line(),
        "Access key and secret, with a colon in between, with which Penstock's own parts sign their requests to the "
        "SQS server, which then accepts signed requests only; give it in the environment. `penstock up` creates one "
        "where the API has keys.",
        secret=True,
    )
    durable_leases: bool = setting(
        False,
        kinds.flag(),
        "Whether messages in flight stay hidden after a crash, for queues without the attribute DurableLeases; a "
        "receive then waits for a commit. With `serve sqs --node` it is always so.",
    )
    databases: tuple[str, ...] = setting(
        (),
        kinds.named_databases(),
        "More databases in which partitions can be placed (`serve sqs --fifo-partition-map`).",
    )


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """The data pipeline on Spark."""

    master: str = setting(
        "local[*]",
        kinds.line(),
        "Where Spark runs: local[*] (this machine, all cores), spark://HOST:PORT, yarn or k8s://…; `--master` takes "
        "precedence.",
    )
    conf: tuple[str, ...] = setting((), kinds.pairs(), "More settings for Spark; `--conf KEY=VALUE` takes precedence.")
    ui: bool = setting(
        False, kinds.flag(), "Serve Spark's own web page, on port 4040 unless `pipeline.conf` sets another."
    )
    checkpoint: str = setting(
        "",
        kinds.line(),
        "Directory or URL where streaming jobs store their progress; on a cluster, one that all its machines can "
        "reach. If empty, pipeline/checkpoint in `data.dir`.",
    )
    lake: str = setting(
        "",
        kinds.line(),
        "Directory or URL of the lake's Delta tables; on a cluster, one that all its machines can reach. If empty, "
        "lake in `data.dir`.",
    )
    keep_days: int = setting(
        0,
        kinds.integer(0, 36_500),
        "Days that stay in the lake, today included; older ones are deleted. 0 keeps all; `--keep-days` takes "
        "precedence.",
    )
    trigger_ms: int = setting(
        500,
        kinds.integer(0, 3_600_000),
        "Minimum time from the start of one micro-batch to the start of the next; 0 is immediately. Few events do not "
        "wait for it: the driver handles them without a micro-batch.",
    )
    few_events: int = setting(
        100_000,
        kinds.integer(0, 1_000_000),
        "While no more events wait, Spark's driver fans out by itself, without its tasks; 0 leaves all to the tasks.",
    )
    few_lanes: int = setting(
        10_000,
        kinds.integer(0, 1_000_000),
        "While no more lanes have jobs to publish, Spark's driver publishes by itself, without its tasks; 0 leaves all "
        "to the tasks.",
    )
    max_rows_per_batch: int = setting(100_000, kinds.integer(1, 100_000_000), "Rows per micro-batch, at most.")
    stop_s: float = setting(30.0, kinds.number(0, 3600), "Time for running micro-batches to finish at shut-down.")


@dataclass(frozen=True, kw_only=True)
class TraceSettings:
    """OpenTelemetry traces from publisher to webhook; they require the extra `traces`."""

    endpoint: str = setting(
        "",
        kinds.line(),
        "URL of a collector that accepts OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; empty is off.",
        secret=True,
    )
    ratio: float = setting(
        1.0, kinds.number(0, 1), "Share of the traces that begin here to keep; the publisher decides about others."
    )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Logs, which go to stderr."""

    format: LogFormat = setting(
        LogFormat.AUTO, kinds.choice(LogFormat), "auto: human on a terminal, JSON lines elsewhere."
    )
    level: LogLevel = setting(LogLevel.INFO, kinds.choice(LogLevel), "The least severe level that is written.")


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """This machine among others."""

    id: int | None = setting(
        None,
        kinds.optional_integer(0, 1023),
        "The part of message ids that makes them unique across machines: give each machine its own. Leave it unset "
        "for a single machine.",
    )


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Several nodes on one PostgreSQL database."""

    node: str = setting(
        "", kinds.line(), "Name of this node, unique in the cluster; empty: this machine is not a node."
    )
    host: str = setting(
        "",
        kinds.line(),
        "Host name or address at which the other nodes reach this machine; empty: all nodes are on this one.",
    )
    ttl_s: float = setting(
        10.0,
        kinds.number(1, 300),
        "How long a node owns its queues after its last renewal, and how long the others wait for a node that is gone; "
        "the same on every node.",
    )
    shards: int = setting(
        8,
        kinds.integer(1, 256),
        "Shards into which the first node of a new cluster divides the SQS queues; each has one owner. The database "
        "keeps the number; later values change nothing.",
    )


@dataclass(frozen=True, kw_only=True)
class EgressSettings:
    """Where deliveries may go."""

    allow: tuple[kinds.Network, ...] = setting(
        (),
        kinds.networks(),
        "Loopback, private and link-local networks that subscribers' URLs may reach.",
    )
    deny_ports: tuple[int, ...] = setting(
        (),
        kinds.ports(),
        "Ports of this machine that deliveries never reach, whatever `egress.allow` opens. Those of the delivering "
        "process are always closed; `penstock up` closes those of all its parts.",
    )
    proxy: str = setting(
        "",
        kinds.proxy_url(),
        "HTTP proxy through which webhooks leave to hosts that have a name; it resolves the name and decides which "
        "networks are reached. Addresses and localhost are connected to directly. A user name and a password in it are "
        "percent-encoded.",
    )


@dataclass(frozen=True, kw_only=True)
class AlertSettings:
    """Penstock's own events (`penstock:**`), which tell operators what is wrong."""

    check_s: float = setting(10.0, kinds.number(0.1, 3600), "Time between two looks at the verdict.")
    repeat_s: float = setting(
        3600.0, kinds.number(1, 604_800), "Time after which a condition that still holds is reported again."
    )
    quiet_hours: str = setting(
        "",
        kinds.hours(),
        "Hours, such as 22:00-07:00, in which alerts about subscriptions and warnings wait; a queue that is not "
        "reached and a part that is lost are reported at any hour. Empty: none.",
    )
    time_zone: str = setting("UTC", kinds.time_zone(), "The time zone of `alerts.quiet_hours`.")


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
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    egress: EgressSettings = field(default_factory=EgressSettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
