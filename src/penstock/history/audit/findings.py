"""What an audit finds: one row for each breach, with the rows that show it.

What an audit says in the end: how much it looked at, how often each guarantee was broken, and examples of it.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.history.audit.window import AuditWindow


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


WAITING_EVENTS = "waiting events"


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One breach; see `findings.FINDINGS`."""

    kind: FindingKind
    detail: str
    group_key: str | None = None
    job_id: str | None = None
    number: int | None = None
    at_ms: int | None = None
    end_ms: int | None = None
    other_job_id: str | None = None
    other_number: int | None = None
    other_at_ms: int | None = None
    other_end_ms: int | None = None
    event_id: str | None = None
    subscription_id: str | None = None


class AuditResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole of it; `findings` are examples, `totals` counts them all."""

    window: AuditWindow
    counts: Mapping[str, int]
    totals: Mapping[FindingKind, int]
    findings: Sequence[Finding]

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not any(self.totals.values())


def result_of(findings: DataFrame, counts: Mapping[str, int], window: AuditWindow, examples: int) -> AuditResult:
    """Count findings, and take the first so many of each kind as examples."""
    # Unlike a cache, which keeps all the empty shares of a shuffle, a checkpoint joins them: there are few findings.
    kept = findings.localCheckpoint()
    found = {row["kind"]: row["count"] for row in kept.groupBy("kind").count().collect()}
    return AuditResult(
        window=window,
        counts=counts,
        totals={kind: found.get(kind.value, 0) for kind in FindingKind},
        findings=_examples(kept, examples) if found else [],
    )


def _examples(findings: DataFrame, most: int) -> list[Finding]:
    in_time = Window.partitionBy("kind").orderBy("at_ms", "group_key", "job_id", "event_id", "number")
    first = findings.withColumn("place", f.row_number().over(in_time)).where(f.col("place") <= most)
    rows = sorted(first.collect(), key=lambda row: (list(FindingKind).index(row["kind"]), row["place"]))
    return [_finding(row) for row in rows]


def _finding(row: Row) -> Finding:
    values = {field.name: row[field.name] for field in FINDINGS.fields}
    return Finding(**{**values, "kind": FindingKind(row["kind"])})
