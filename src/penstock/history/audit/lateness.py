"""How late an audit's window was, by subscription: what waits, since when, and how long deliveries took."""

from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from penstock.domain.job_state import JobStatus
from penstock.history.audit.window import AuditWindow

_ACCURACY = 1_000


class Lateness(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A subscription's jobs of a window. Times count from when a job could go: when it was published or planned for.

    `p50_ms` and `p99_ms` are those of delivered jobs until they were delivered, retries included.
    """

    subscription_id: str | None
    subscription: str | None
    delivered: int
    p50_ms: int | None
    p99_ms: int | None
    longest_ms: int | None
    waiting: int
    oldest_waiting_ms: int | None
    """How long the oldest job that is due has waited."""


def lateness(jobs: DataFrame, window: AuditWindow, names: Mapping[str, str]) -> list[Lateness]:
    """Return the lateness of each subscription, the latest first; one pass over the jobs."""
    taken_ms = window.until_ms if window.taken_ms is None else window.taken_ms
    due_ms = f.coalesce("scheduled_for_ms", "created_at_ms")
    in_window = f.col("finished_at_ms").between(window.since_ms, window.until_ms - 1)
    delivered = (f.col("status") == JobStatus.COMPLETED.value) & in_window
    took_ms = f.when(delivered, f.greatest(f.try_subtract("finished_at_ms", due_ms), f.lit(0)))
    waits = f.col("finished_at_ms").isNull() & (due_ms < window.until_ms)
    waited_ms = f.when(waits, f.greatest(f.try_subtract(f.lit(taken_ms), due_ms), f.lit(0)))
    rows = jobs.groupBy("subscription_id").agg(
        f.count(took_ms).alias("delivered"),
        _share(took_ms, 0.5).alias("p50_ms"),
        _share(took_ms, 0.99).alias("p99_ms"),
        f.max(took_ms).alias("longest_ms"),
        f.count(waited_ms).alias("waiting"),
        f.max(waited_ms).alias("oldest_waiting_ms"),
    )
    found = [_lateness(row, names) for row in rows.collect() if row["delivered"] or row["waiting"]]
    return sorted(found, key=lambda each: (-(each.oldest_waiting_ms or 0), -(each.p99_ms or 0)))


LATENESS_COLUMNS = ("subscription", "delivered", "p50", "p99", "longest", "waiting", "oldest waits")


def lateness_cells(found: Sequence[Lateness]) -> list[tuple[str, ...]]:
    """Return lines of a table under LATENESS_COLUMNS."""
    return [
        (
            each.subscription or each.subscription_id or "(none)",
            f"{each.delivered:,}",
            *map(_duration, (each.p50_ms, each.p99_ms, each.longest_ms)),
            f"{each.waiting:,}",
            _duration(each.oldest_waiting_ms),
        )
        for each in found
    ]


def _duration(length_ms: int | None) -> str:
    if length_ms is None:
        return "-"
    if length_ms < 10_000:
        return f"{length_ms} ms"
    minutes, seconds = divmod(length_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def _share(values: Column, share: float) -> Column:
    return f.percentile_approx(values, share, _ACCURACY)


def _lateness(row: Row, names: Mapping[str, str]) -> Lateness:
    values = {name: row[name] for name in Lateness.__struct_fields__ if name != "subscription"}
    return Lateness(**values, subscription=names.get(row["subscription_id"]))
