"""What an audit finds: one row for each breach, with the rows that show it."""

from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType


class FindingKind(StrEnum):
    """Which guarantee was broken."""

    LOST = "LOST"
    """An event was fanned out, and a subscription that wanted it has no job for it."""
    UNDELIVERED = "UNDELIVERED"
    """A job is COMPLETED, and no delivery of it is on record."""
    OVERTAKEN = "OVERTAKEN"
    """A delivery began while an earlier job of its group held it back."""
    OVERLAP = "OVERLAP"
    """A delivery began while another one of its group was under way."""
    DUPLICATE = "DUPLICATE"
    """A job was delivered again after it had been delivered."""
    UNKNOWN_JOB = "UNKNOWN_JOB"
    """An attempt belongs to no job."""
    DAMAGED = "DAMAGED"
    """A row cannot be right, so that it proves nothing."""


def _text(name: str) -> StructField:
    return StructField(name, StringType(), nullable=True)


def _number(name: str) -> StructField:
    return StructField(name, LongType(), nullable=True)


FINDINGS = StructType(
    [
        StructField("kind", StringType(), nullable=False),
        _text("group_key"),
        _text("job_id"),
        _number("number"),
        _number("at_ms"),
        _number("end_ms"),
        _text("other_job_id"),
        _number("other_number"),
        _number("other_at_ms"),
        _number("other_end_ms"),
        _text("event_id"),
        _text("subscription_id"),
        _text("detail"),
    ]
)
"""`number`, `at_ms` and `end_ms` are the attempt's; `other_…` is what it is in conflict with."""


def as_findings(rows: DataFrame, kind: "FindingKind | Column", **columns: Column) -> DataFrame:
    """Rows in the shape of findings; columns that are not given are null."""
    given = {"kind": f.lit(kind.value) if isinstance(kind, FindingKind) else kind, **columns}
    return rows.select(
        *(given.get(field.name, f.lit(None)).cast(field.dataType).alias(field.name) for field in FINDINGS.fields)
    )
