"""The audited window, the rows that belong to it, and which of them are valid."""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.domain.job_state import FINAL, JobStatus
from penstock.domain.limits import MINUTE_MS, SECOND_MS
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode

SETTLED_MS = 5 * SECOND_MS
"""Tables are read one after the other while the system runs: younger rows are left for the next audit."""

CATALOG_LAG_MS = 10 * SECOND_MS
"""A subscription's id is older than its row: events that follow it this closely may miss it."""

FINISH_LAG_MS = MINUTE_MS
"""The longest time from the end of a delivery until it is recorded; its lease has expired by then."""

LONGEST_DELIVERY_MS = 24 * 60 * MINUTE_MS
"""No delivery lasts longer, so that attempts that ended in a window are found by their start."""

FUTURE_MS = 60 * MINUTE_MS
"""A row from a clock that is further ahead is damaged."""

ROUNDING_MS = 1
"""Times are whole milliseconds: a smaller gap between an end and a start proves nothing."""


class AuditWindow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """From `since_ms` up to but not including `until_ms`, read at `taken_ms`.

    `tolerance_ms` is by how much the clocks of machines may differ: what that explains is not a finding.
    `subscription_id` restricts the audit to one subscription; `changed_ms` says when subscriptions got their current
    pattern and filter.
    """

    until_ms: int
    since_ms: int = 0
    taken_ms: int | None = None
    tolerance_ms: int = 0
    subscription_id: str | None = None
    changed_ms: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def future_ms(self) -> int:
        """Return the time after which rows are damaged."""
        return (self.until_ms if self.taken_ms is None else self.taken_ms) + FUTURE_MS

    @property
    def jobs_since_ms(self) -> int:
        """Return the time before which finished jobs do not matter."""
        return self.since_ms - FINISH_LAG_MS

    @property
    def attempts_since_ms(self) -> int:
        """Return the time before which attempts ended before the window."""
        return self.since_ms - LONGEST_DELIVERY_MS


JOB_COLUMNS = (
    "id", "event_id", "subscription_id", "group_key", "sequence", "mode", "status", "scheduled_for_ms",
    "delivery_count", "created_at_ms", "finished_at_ms",
)  # fmt: skip

ATTEMPT_COLUMNS = ("job_id", "number", "outcome", "at_ms", "duration_ms")
OUTCOMES = tuple(outcome.value for outcome in AttemptOutcome)
STATUSES = tuple(status.value for status in JobStatus)
MODES = tuple(mode.value for mode in DispatchMode)
ORDERED = (DispatchMode.BLOCK_ON_ERROR.value, DispatchMode.NEXT_ON_ERROR.value)

NameEncoding = Callable[[str], str | int]
"""How a row represents a status, a mode or an outcome."""


def by_name(name: str) -> str:
    """Return the name itself, as tables have it."""
    return name


def jobs_of(jobs: DataFrame, window: AuditWindow) -> DataFrame:
    """Return the jobs that were not finished before the window."""
    kept = jobs.select(*JOB_COLUMNS)
    if window.subscription_id is not None:
        kept = kept.where(f.col("subscription_id") == window.subscription_id)
    finished = f.col("finished_at_ms")
    return kept.where(finished.isNull() | (finished >= window.jobs_since_ms)) if window.since_ms > 0 else kept


def attempts_of(attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """Return the attempts in progress in the window with `end_ms`, and those with impossible times."""
    at, duration = f.col("at_ms"), f.coalesce(f.col("duration_ms"), f.lit(0))
    kept = attempts.select(*ATTEMPT_COLUMNS)
    if window.since_ms > 0:
        kept = kept.where(at >= window.attempts_since_ms)
    lasted = f.least(f.greatest(duration, f.lit(0)), f.lit(LONGEST_DELIVERY_MS))
    # An overflow must not end the audit.
    ended = kept.withColumn("end_ms", f.coalesce(f.try_add(at, lasted), at))
    under_way = (at < window.until_ms) & (f.col("end_ms") >= window.since_ms)
    return ended.where(under_way | at.isNull() | (at > window.future_ms))


def job_damage(window: AuditWindow, encoded: NameEncoding = by_name) -> Column:
    """Return what is wrong with a job's row; null if nothing is."""
    times = ("created_at_ms", "finished_at_ms")
    is_over = f.col("status").isin([encoded(status.value) for status in FINAL])
    return f.coalesce(
        *_missing(("id", "group_key", "sequence", "created_at_ms"), "job"),
        *(f.when(f.col(name) < 0, f"{name} of the job is before 1970") for name in times),
        *(f.when(f.col(name) > window.future_ms, f"{name} of the job is in the future") for name in times),
        f.when(~_among("mode", MODES, encoded), "the job's mode is unknown"),
        f.when(~_among("status", STATUSES, encoded), "the job's status is unknown"),
        f.when(is_over & f.col("finished_at_ms").isNull(), "the job is finished but has no finished_at_ms"),
    )


def attempt_damage(window: AuditWindow, encoded: NameEncoding = by_name) -> Column:
    """Return what is wrong with an attempt's row; null if nothing is."""
    return f.coalesce(
        *_missing(("job_id", "number", "at_ms", "duration_ms"), "attempt"),
        f.when(f.col("at_ms") < 0, "the attempt began before 1970"),
        f.when(f.col("at_ms") > window.future_ms, "the attempt began in the future"),
        f.when(f.col("duration_ms") < 0, "the attempt ended before it began"),
        f.when(f.col("duration_ms") > LONGEST_DELIVERY_MS, "the attempt lasted more than a day"),
        f.when(~_among("outcome", OUTCOMES, encoded), "the attempt's outcome is unknown"),
    )


def has_place(window: AuditWindow, encoded: NameEncoding = by_name) -> Column:
    """Return whether a job's row says where it stands among the ordered jobs of a group."""
    named = f.col("id").isNotNull() & f.col("group_key").isNotNull() & f.col("sequence").isNotNull()
    created = f.col("created_at_ms").between(0, window.future_ms)
    return f.coalesce(named & created & f.col("mode").isin(*map(encoded, ORDERED)), f.lit(False))


def has_time(window: AuditWindow) -> Column:
    """Return whether an attempt's row says when it began, in the window."""
    return f.coalesce(f.col("job_id").isNotNull() & f.col("at_ms").between(0, window.until_ms - 1), f.lit(False))


def _missing(names: Sequence[str], what: str) -> list[Column]:
    return [f.when(f.col(name).isNull(), f"the {what} has no {name}") for name in names]


def _among(name: str, known: Sequence[str], encoded: NameEncoding) -> Column:
    return f.coalesce(f.col(name).isin(*map(encoded, known)), f.lit(False))
