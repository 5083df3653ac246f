"""The audit of a clean history in Parquet: attempts a second, with the heap that Penstock gives Spark by default."""

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.bench.pipeline_history import history
from penstock.bench.rounds import median_rate
from penstock.domain.job import AttemptOutcome
from penstock.history.audit.audit import audit_frame
from penstock.history.audit.findings import AuditResult, result_of
from penstock.history.audit.window import AuditWindow


def audited_per_s(spark: SparkSession, directory: Path, attempts: int, rounds: int) -> float:
    """Audit, and see to it that the audit looked at every attempt and found nothing."""
    made = history(spark, directory, attempts)
    count = made.attempts.count()
    window = AuditWindow(until_ms=made.until_ms, taken_ms=made.until_ms)

    def audit() -> int:
        audited = audit_frame(made.events, made.subscriptions, made.jobs, made.attempts, window)
        result = result_of(audited.findings, audited.counts, window, examples=1)
        spark.catalog.clearCache()
        if not result.is_clean or _looked_at(result) != count:
            raise RuntimeError(f"the audit saw {_looked_at(result):,} of {count:,} attempts, and {result.findings}")
        return count

    audit()
    return median_rate(rounds, audit)


def _looked_at(result: AuditResult) -> int:
    return sum(result.counts.get(outcome.value, 0) for outcome in AttemptOutcome)
