"""The tree of settings. To add one: add a field to its section (or a section and its line in `Config`); nothing else.

Loading, `penstock config init` and docs/reference/configuration.md all follow from it. Units are in names: `_s`,
`_bytes`, `_messages`.
"""

# ruff: noqa: RUF009  `setting` makes a field, as `dataclasses.field` does; its result is not shared.

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from penstock.ops.config import kinds
from penstock.ops.config.dispatch_options import ApiOptions, JobsOptions, SchedulerOptions
from penstock.ops.config.ports import PortSettings
from penstock.ops.config.router_options import RouterOptions
from penstock.ops.config.setting import setting

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
    """OpenTelemetry traces from publishing to the webhook; they need `pip install "penstock-events[traces]"`."""

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
