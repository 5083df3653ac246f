"""The columns of events, subscriptions, jobs and attempts as DataFrames.

They are the tables of `events/store/migrations` in Spark's types: times are milliseconds since 1970, `mode` and
`status` are the names of `DispatchMode` and `JobStatus`, and `attributes`, `headers` and a subscription's `filter` are
JSON.
"""

from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StringType, StructField, StructType

_TEXT = StringType()
_NUMBER = LongType()


def _column(name: str, kind: "StringType | LongType | BinaryType | BooleanType | IntegerType") -> StructField:
    return StructField(name, kind, nullable=False)


def _optional(name: str, kind: "StringType | LongType | BinaryType | IntegerType") -> StructField:
    return StructField(name, kind, nullable=True)


POSITION = "position"
"""A row's place in the order in which rows became visible, which streams follow (sources/stream_source.py)."""

EVENTS = StructType(
    [
        _column("id", _TEXT),
        _column("tenant", _TEXT),
        _column("source", _TEXT),
        _column("external_id", _TEXT),
        _column("type", _TEXT),
        _optional("subject", _TEXT),
        _optional("time_ms", _NUMBER),
        _column("data", BinaryType()),
        _column("content_type", _TEXT),
        _optional("group_name", _TEXT),
        _column("attributes", _TEXT),
        _column("received_ms", _NUMBER),
        _column(POSITION, _NUMBER),
    ]
)

DATA_BYTES = _column("data_bytes", _NUMBER)
"""The size of an event's data, for readers that do not need the data itself; only read if it is named."""

SUBSCRIPTIONS = StructType(
    [
        _column("id", _TEXT),
        _column("tenant", _TEXT),
        _column("name", _TEXT),
        _column("pattern", _TEXT),
        _column("filter", _TEXT),
        _column("target", _TEXT),
        _column("pool", _TEXT),
        _column("mode", _TEXT),
        _column("paused", BooleanType()),
    ]
)

JOBS = StructType(
    [
        _column("id", _TEXT),
        _column("tenant", _TEXT),
        _column("type", _TEXT),
        _optional("event_id", _TEXT),
        _optional("subscription_id", _TEXT),
        _optional("group_name", _TEXT),
        _column("group_key", _TEXT),
        _column("sequence", _NUMBER),
        _column("mode", _TEXT),
        _column("status", _TEXT),
        _column("target", _TEXT),
        _column("pool", _TEXT),
        _optional("idempotency_key", _TEXT),
        _optional("scheduled_for_ms", _NUMBER),
        _column("due_at_ms", _NUMBER),
        _optional("expires_at_ms", _NUMBER),
        _column("attempt_count", _NUMBER),
        _column("delivery_count", _NUMBER),
        _column("publish_round", _NUMBER),
        _optional("last_error", _TEXT),
        _column("created_at_ms", _NUMBER),
        _column("updated_at_ms", _NUMBER),
        _optional("finished_at_ms", _NUMBER),
    ]
)

ATTEMPTS = StructType(
    [
        _column("job_id", _TEXT),
        _column("number", _NUMBER),
        _column("outcome", _TEXT),
        _column("at_ms", _NUMBER),
        _column("duration_ms", _NUMBER),
        _optional("status_code", _NUMBER),
        _optional("response", _TEXT),
        _optional("error", _TEXT),
        _column(POSITION, _NUMBER),
    ]
)

READY_JOBS = StructType(
    [
        JOBS[name]
        for name in (
            "id",
            "group_key",
            "mode",
            "sequence",
            "created_at_ms",
            "due_at_ms",
            "expires_at_ms",
            "subscription_id",
            "pool",
            "publish_round",
            "delivery_count",
        )
    ]
)
"""What dispatch reads of PENDING jobs that are due."""
