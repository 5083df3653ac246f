"""The findings of an audit, one row for each breach, and its result: counts, totals and examples."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.history.audit.lateness import Lateness
from penstock.history.audit.window import AuditWindow

WAITING_EVENTS = "waiting events"


class FindingKind(StrEnum):
    """Which guarantee was broken."""

    LOST = "LOST"
    """An event was fanned out, but a subscription that wanted it has no job for it."""
    UNDELIVERED = "UNDELIVERED"
    """A job is COMPLETED, but no delivery of it is on record."""
    OVERTAKEN = "OVERTAKEN"
    """A delivery began while an earlier job of its group held it back."""
    OVERLAP = "OVERLAP"
    """A delivery began while another one of its group was in progress."""
    DUPLICATE = "DUPLICATE"
    """A job was delivered again after it had been delivered."""
    UNKNOWN_JOB = "UNKNOWN_JOB"
    """An attempt has no job."""
    DAMAGED = "DAMAGED"
    """A row has impossible values and proves nothing."""


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
"""`number`, `at_ms` and `end_ms` are those of the attempt; `other_…` is what it conflicts with."""


def as_findings(rows: DataFrame, kind: "FindingKind | Column", **columns: Column) -> DataFrame:
    """Return rows as findings; columns that are not given are null."""
    given = {"kind": f.lit(kind.value) if isinstance(kind, FindingKind) else kind, **columns}
    return rows.select(
        *(given.get(field.name, f.lit(None)).cast(field.dataType).alias(field.name) for field in FINDINGS.fields)
    )


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One breach; see FINDINGS."""

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
    """The result of an audit; `totals` counts all findings, and `findings` has examples."""

    window: AuditWindow
    counts: Mapping[str, int]
    totals: Mapping[FindingKind, int]
    findings: Sequence[Finding]
    lateness: Sequence[Lateness] = ()

    @property
    def is_clean(self) -> bool:
        """Return whether nothing was found."""
        return not any(self.totals.values())


def checkpointed(frame: DataFrame) -> DataFrame:
    """Return a frame that is computed once: in the checkpoint directory if one is set, else in the executors' memory.

    A checkpoint joins the empty shares of a shuffle, which a cache would keep. One in memory is lost with its executor.
    """
    return frame.checkpoint() if frame.sparkSession.sparkContext.getCheckpointDir() else frame.localCheckpoint()


def result_of(
    findings: DataFrame,
    counts: Mapping[str, int],
    window: AuditWindow,
    examples: int,
    lateness: Sequence[Lateness] = (),
) -> AuditResult:
    """Count findings, and take the first `examples` of each kind."""
    kept = checkpointed(findings)
    found = {row["kind"]: row["count"] for row in kept.groupBy("kind").count().collect()}
    return AuditResult(
        window=window,
        counts=counts,
        totals={kind: found.get(kind.value, 0) for kind in FindingKind},
        findings=_examples(kept, examples) if found else [],
        lateness=lateness,
    )


def _examples(findings: DataFrame, most: int) -> list[Finding]:
    in_time = Window.partitionBy("kind").orderBy("at_ms", "group_key", "job_id", "event_id", "number")
    first = findings.withColumn("place", f.row_number().over(in_time)).where(f.col("place") <= most)
    rows = sorted(first.collect(), key=lambda row: (list(FindingKind).index(row["kind"]), row["place"]))
    return [_finding(row) for row in rows]


def _finding(row: Row) -> Finding:
    values = {field.name: row[field.name] for field in FINDINGS.fields}
    return Finding(**{**values, "kind": FindingKind(row["kind"])})
