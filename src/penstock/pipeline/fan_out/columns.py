"""What fan-out reads of an event, and what it says of a job; the rule is `jobs.fan_out.job_for`."""

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

EVENT_COLUMNS = (
    "id", "tenant", "source", "external_id", "type", "subject", "content_type", "group_name", "attributes",
    "received_ms",
)  # fmt: skip
"""Never the data, which may be large: the job's delivery reads it."""

REQUIRED = ("id", "tenant", "source", "external_id", "type", "content_type", "attributes", "received_ms")


def _text(name: str, *, nullable: bool = False) -> StructField:
    return StructField(name, StringType(), nullable)


PLANNED_JOBS = StructType(
    [
        _text("id"),
        _text("tenant"),
        _text("type"),
        _text("event_id"),
        _text("subscription_id"),
        _text("group_name", nullable=True),
        _text("group_key"),
        _text("mode"),
        _text("target"),
        _text("pool"),
        _text("content_type"),
        StructField("created_at_ms", LongType(), nullable=False),
    ]
)
"""A job before it is kept. Its sequence, payload and times are those of every job that an event causes."""

PLANNED_JOBS_ARROW = to_arrow_schema(PLANNED_JOBS)

SET_ASIDE = StructType([_text("event_id", nullable=True), _text("reason")])
"""An event that no job can be made of."""
