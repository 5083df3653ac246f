"""The tables of the lake: their columns and what each means. A column is only ever added, never renamed or removed.

`docs/reference/lake.md` is generated from here (`WRITE_DOCS=1 pytest tests/pipeline/test_lake_reference.py`).
"""

import msgspec
import pyarrow
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

DATE = "date"
"""The column that every large table is partitioned by."""

POSITION = "position"


class LakeColumn(msgspec.Struct, frozen=True):
    """A column: its name, its type in SQL, and its meaning."""

    name: str
    kind: str
    text: str


class LakeTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the lake."""

    name: str
    text: str
    columns: tuple[LakeColumn, ...]
    partitions: tuple[str, ...] = (DATE,)

    @property
    def names(self) -> list[str]:
        """Return the names of its columns."""
        return [column.name for column in self.columns]

    @property
    def spark(self) -> StructType:
        """Return its schema in Spark."""
        return StructType([StructField(column.name, _SPARK[column.kind]) for column in self.columns])

    @property
    def arrow(self) -> pyarrow.Schema:
        """Return its schema in Arrow."""
        return pyarrow.schema([(column.name, _ARROW[column.kind]) for column in self.columns])


_SPARK: dict[str, DataType] = {
    "string": StringType(),
    "bigint": LongType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "date": DateType(),
}
_ARROW = {
    "string": pyarrow.string(),
    "bigint": pyarrow.int64(),
    "boolean": pyarrow.bool_(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
    "date": pyarrow.date32(),
}


def _columns(*rows: tuple[str, str, str]) -> tuple[LakeColumn, ...]:
    return tuple(LakeColumn(*row) for row in rows)


_JOB = (
    ("tenant", "string", "the tenant, empty if there is only one"),
    ("subscription_id", "string", "the subscription's id, null for a job without one"),
    ("subscription", "string", "the subscription's name when the row was written"),
    ("event_id", "string", "the event's id, null for a job without an event"),
    ("event_type", "string", "the event's type"),
    ("key", "string", "the key by which the event is ordered"),
    ("group_key", "string", "the lane: the key within its subscription"),
    ("pool", "string", "the pool that delivered"),
    ("endpoint", "string", "the target without user name, query and fragment"),
    ("endpoint_host", "string", "the target's host and port"),
)

DELIVERIES = LakeTable(
    name="deliveries",
    text="One row for each attempt to deliver.",
    columns=_columns(
        ("attempted_at", "timestamp", "when the attempt began"),
        ("job_id", "string", "the job; `(job_id, attempt, attempted_at)` is unique"),
        ("attempt", "bigint", "1 for the first attempt of the job"),
        ("outcome", "string", "DELIVERED, FAILED, REFUSED or DEFERRED"),
        ("status", "bigint", "the HTTP status, null without an answer"),
        ("reason", "string", "why it was not delivered, up to 200 characters"),
        ("response_ms", "bigint", "how long the endpoint took"),
        ("was_sent", "boolean", "whether a request was sent"),
        ("waited_ms", "bigint", "how long the job waited for its first attempt; null for later ones"),
        *_JOB,
        ("event_time", "timestamp", "the event's own time"),
        ("event_bytes", "bigint", "the size of the event's data"),
        ("created_at", "timestamp", "when the job was created"),
        ("was_repaired", "boolean", "whether an impossible duration was brought into bounds"),
        (POSITION, "bigint", "the order in which rows became visible in the database"),
        (DATE, "date", "the day of `attempted_at` in UTC"),
    ),
)

JOBS = LakeTable(
    name="jobs",
    text=(
        "One row for each job that ended, and another if it was retried by hand and ended again. "
        "A job that ended without any attempt (expired or cancelled before its first) comes a minute or two later."
    ),
    columns=_columns(
        ("job_id", "string", "the job"),
        ("final_status", "string", "COMPLETED, ERROR, CANCELLED or EXPIRED"),
        ("attempts", "bigint", "how many attempts it took"),
        ("created_at", "timestamp", "when the job was created"),
        ("finished_at", "timestamp", "when it ended"),
        *_JOB,
        ("event_time", "timestamp", "the event's own time"),
        ("event_bytes", "bigint", "the size of the event's data"),
        (POSITION, "bigint", "the position of its last attempt, -1 if it had none"),
        (DATE, "date", "the day of its last attempt in UTC, or of its end if it had none"),
    ),
)

EVENTS = LakeTable(
    name="events",
    text="One row for each event that was accepted, without its data.",
    columns=_columns(
        ("event_id", "string", "the event's id in Penstock"),
        ("tenant", "string", "the tenant, empty if there is only one"),
        ("source", "string", "the CloudEvent's `source`"),
        ("source_event_id", "string", "the CloudEvent's `id`"),
        ("event_type", "string", "the CloudEvent's `type`"),
        ("subject", "string", "the CloudEvent's `subject`"),
        ("key", "string", "the CloudEvent's `partitionkey`"),
        ("content_type", "string", "the type of the data"),
        ("event_bytes", "bigint", "the size of the data"),
        ("event_time", "timestamp", "the CloudEvent's `time`"),
        ("received_at", "timestamp", "when it was accepted"),
        (POSITION, "bigint", "the order in which rows became visible in the database"),
        (DATE, "date", "the day of `received_at` in UTC"),
    ),
)

SUBSCRIPTIONS = LakeTable(
    name="subscriptions",
    text="One row for each version of a subscription; the last one by `valid_from` is in force.",
    partitions=(),
    columns=_columns(
        ("subscription_id", "string", "the subscription"),
        ("tenant", "string", "the tenant, empty if there is only one"),
        ("name", "string", "its name"),
        ("pattern", "string", "the event types it wants"),
        ("endpoint", "string", "its target without user name, query and fragment"),
        ("pool", "string", "its pool"),
        ("mode", "string", "what a failed job of a key does to the next ones"),
        ("paused", "boolean", "whether deliveries are paused"),
        ("deleted", "boolean", "whether this version says that it was deleted"),
        ("valid_from", "timestamp", "when this version was first seen"),
        (POSITION, "bigint", "the number of the version in this table"),
    ),
)

TABLES = {table.name: table for table in (DELIVERIES, JOBS, EVENTS, SUBSCRIPTIONS)}


def reference() -> str:
    """Return the reference of the tables in Markdown."""
    parts = []
    for table in TABLES.values():
        rows = "\n".join(f"| `{column.name}` | {column.kind} | {column.text} |" for column in table.columns)
        where = f" Partitioned by `{DATE}`." if table.partitions else ""
        parts.append(f"## `{table.name}`\n\n{table.text}{where}\n\n| column | type | what |\n|---|---|---|\n{rows}\n")
    return "\n".join(parts)
