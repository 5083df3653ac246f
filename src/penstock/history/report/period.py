"""The period of a report, a day or a week in UTC, and its facts from the lake or the database."""

import re
from datetime import UTC, date, datetime, timedelta

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.events.statistics import DAY_MS
from penstock.history.errors import LakeEmpty
from penstock.history.lake.facts import FLAW, ORIGIN, as_facts, with_flaws
from penstock.history.lake.lake import Lake
from penstock.history.lake.schema import POSITION, SUBSCRIPTIONS
from penstock.spark.errors import InvalidPipelineOption
from penstock.spark.tables import Tables

_WEEK = re.compile(r"(\d{4})-W(\d{2})")
_MINUTES_30_MS = 30 * 60 * 1000
_HOURS_3_MS = 3 * 60 * 60 * 1000
_STEPS_PER_MARK = 8


class ReportPeriod(msgspec.Struct, frozen=True):
    """Consecutive days, and their title."""

    title: str
    first: date
    length: int

    @property
    def days(self) -> list[str]:
        """Return the days as the lake names them."""
        return [(self.first + timedelta(days=step)).isoformat() for step in range(self.length)]

    @property
    def since_ms(self) -> int:
        """Return its first millisecond."""
        return int(datetime(self.first.year, self.first.month, self.first.day, tzinfo=UTC).timestamp()) * 1000

    @property
    def until_ms(self) -> int:
        """Return the first millisecond after it."""
        return self.since_ms + self.length * DAY_MS

    @property
    def step_ms(self) -> int:
        """Return the width of a step on its time axis."""
        return _MINUTES_30_MS if self.length == 1 else _HOURS_3_MS

    @property
    def steps(self) -> list[int]:
        """Return the start of each step."""
        return list(range(self.since_ms, self.until_ms, self.step_ms))

    def name(self, step_ms: int) -> str:
        """Return the name of a step."""
        return _moment(step_ms).strftime("%H:%M" if self.length == 1 else "%a %d %H:%M")

    def mark(self, step_ms: int) -> str:
        """Return the label below a step: every four hours of a day, every day of a week; else an empty string."""
        if (step_ms - self.since_ms) % (_STEPS_PER_MARK * self.step_ms):
            return ""
        return _moment(step_ms).strftime("%H:%M" if self.length == 1 else "%a")


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def day_period(text: str) -> ReportPeriod:
    """Return one day, such as 2026-11-01."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    # Python accepts other notations too; the lake's directories use this one.
    if day is None or day.isoformat() != text:
        raise InvalidPipelineOption(f"{text!r} is not a day: write it as 2026-11-01")
    return ReportPeriod(text, day, 1)


def week_period(text: str) -> ReportPeriod:
    """Return a week from Monday to Sunday, such as 2026-W44."""
    found = _WEEK.fullmatch(text)
    try:
        if found is not None:
            return ReportPeriod(f"week {text}", date.fromisocalendar(int(found[1]), int(found[2]), 1), 7)
    except ValueError:
        pass
    raise InvalidPipelineOption(f"{text!r} is not a week: write it as 2026-W44")


def facts_of_lake(lake: Lake, span: ReportPeriod) -> DataFrame:
    """Return the facts of a period's days; LakeEmpty if the lake has none."""
    if not lake.days():
        raise LakeEmpty
    return lake.facts(span.days)


def names_in_lake(lake: Lake) -> dict[str, str]:
    """Return the last names of subscriptions, by their ids."""
    files = lake.tables[SUBSCRIPTIONS.name]
    rows = files.read(files.files(), ["subscription_id", "name", POSITION]).to_pylist()
    return {row["subscription_id"]: row["name"] for row in sorted(rows, key=lambda row: row[POSITION])}


def names_in_database(tables: Tables) -> dict[str, str]:
    """Return the names of subscriptions, by their ids."""
    return {row["id"]: row["name"] for row in tables.subscriptions().select("id", "name").collect()}


def facts_of_database(tables: Tables, span: ReportPeriod) -> DataFrame:
    """Return the same facts from the attempts that the database still has; all its jobs are read."""
    inside = (f.col("at_ms") >= span.since_ms) & (f.col("at_ms") < span.until_ms)
    columns = ["job_id", "number", "outcome", "at_ms", "duration_ms", "status_code", "error", "position"]
    attempts = with_flaws(tables.attempts(columns).where(inside), span.until_ms).where(f.col(FLAW).isNull())
    jobs = tables.jobs(["id", *ORIGIN.names]).withColumnRenamed("id", "job_id")
    return as_facts(attempts.join(jobs, "job_id", "left")).drop(FLAW)
