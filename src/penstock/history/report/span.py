"""The time a report is about: a day or a week, in UTC.

Where a report's facts come from: the lake, or the database of jobs.
"""

import re
from datetime import UTC, date, datetime, timedelta

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.events.statistics import DAY_MS
from penstock.history.errors import LakeEmpty
from penstock.history.lake.facts import FLAW, ORIGIN, judged, shaped
from penstock.history.lake.lake import Lake
from penstock.spark.errors import InvalidPipelineOption
from penstock.spark.tables import Tables

_WEEK = re.compile(r"(\d{4})-W(\d{2})")
_MINUTES_30_MS = 30 * 60 * 1000
_HOURS_3_MS = 3 * 60 * 60 * 1000
_STEPS_PER_MARK = 8


class ReportPeriod(msgspec.Struct, frozen=True):
    """Some days, one after the other, and how they are called."""

    title: str
    first: date
    length: int

    @property
    def days(self) -> list[str]:
        """The days as the lake calls them."""
        return [(self.first + timedelta(days=step)).isoformat() for step in range(self.length)]

    @property
    def since_ms(self) -> int:
        """Its first millisecond."""
        return int(datetime(self.first.year, self.first.month, self.first.day, tzinfo=UTC).timestamp()) * 1000

    @property
    def until_ms(self) -> int:
        """The first millisecond after it."""
        return self.since_ms + self.length * DAY_MS

    @property
    def step_ms(self) -> int:
        """The width of a step on its time axis."""
        return _MINUTES_30_MS if self.length == 1 else _HOURS_3_MS

    @property
    def steps(self) -> list[int]:
        """The beginning of each step."""
        return list(range(self.since_ms, self.until_ms, self.step_ms))

    def name(self, step_ms: int) -> str:
        """What a step is called."""
        return _moment(step_ms).strftime("%H:%M" if self.length == 1 else "%a %d %H:%M")

    def mark(self, step_ms: int) -> str:
        """What is written below a step on the axis: every four hours of a day, every day of a week; else nothing."""
        if (step_ms - self.since_ms) % (_STEPS_PER_MARK * self.step_ms):
            return ""
        return _moment(step_ms).strftime("%H:%M" if self.length == 1 else "%a")


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def day_span(text: str) -> ReportPeriod:
    """One day, as 2026-11-01."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    # Python reads other ways to write a day too; the lake's directories have this one.
    if day is None or day.isoformat() != text:
        raise InvalidPipelineOption(f"{text!r} is no day: write it as 2026-11-01")
    return ReportPeriod(text, day, 1)


def week_span(text: str) -> ReportPeriod:
    """A week from Monday to Sunday, as 2026-W44."""
    found = _WEEK.fullmatch(text)
    try:
        if found is not None:
            return ReportPeriod(f"week {text}", date.fromisocalendar(int(found[1]), int(found[2]), 1), 7)
    except ValueError:
        pass
    raise InvalidPipelineOption(f"{text!r} is no week: write it as 2026-W44")


def facts_of_lake(lake: Lake, span: ReportPeriod) -> DataFrame:
    """The facts of a span's days; LakeEmpty if there is no lake yet."""
    if not lake.days():
        raise LakeEmpty
    return lake.facts(span.days)


def facts_of_database(tables: Tables, span: ReportPeriod) -> DataFrame:
    """The same, made from the attempts that the database still has; all its jobs are read."""
    inside = (f.col("at_ms") >= span.since_ms) & (f.col("at_ms") < span.until_ms)
    columns = ["job_id", "number", "outcome", "at_ms", "duration_ms", "status_code", "error", "position"]
    attempts = judged(tables.attempts(columns).where(inside), span.until_ms).where(f.col(FLAW).isNull())
    jobs = tables.jobs(["id", *ORIGIN.names]).withColumnRenamed("id", "job_id")
    return shaped(attempts.join(jobs, "job_id", "left")).drop(FLAW)
