"""Counts a batch where its rows are: each task uses the inline engine's code and sends only the sums."""

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any

import msgspec
import pyarrow
from pyspark.sql import DataFrame

from penstock.domain.outcome import AttemptOutcome
from penstock.events.statistics import (
    BEFORE_ALL,
    Fact,
    Leaders,
    Minute,
    StatisticsPlace,
    count,
    count_leaders,
    joined,
    named,
    summed,
)
from penstock.history.lake.facts import DAY, FLAW
from penstock.spark.workers import freeze_long_lived_objects

MOST_FLAWS_SHOWN = 1_000

_COLUMNS = (
    "job_id", "number", "at_ms", "position", "outcome", "duration_ms", "was_sent", "waited_ms", "pool", "endpoint",
    "subscription_id", "group_key", "repaired", DAY, FLAW,
)  # fmt: skip


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a batch: its last attempt, facts by day, their sums, and flawed attempts."""

    passed: int = 0
    """Attempts up to the place, which were skipped."""
    upto: StatisticsPlace = BEFORE_ALL
    days: dict[str, int] = {}
    minutes: tuple[Minute, ...] = ()
    leaders: dict[int, Leaders] = {}
    repaired: int = 0
    flawed: int = 0
    flaws: tuple[tuple[str, str], ...] = ()
    """Keys and reasons of flawed attempts, limited to what a page can show."""

    @property
    def facts(self) -> int:
        """Return how many attempts are facts."""
        return sum(self.days.values())


_decode = msgspec.msgpack.Decoder(Tally).decode


def tally(facts: DataFrame, after: StatisticsPlace, oldest_ms: int) -> Tally:
    """Count the attempts after a place; minutes before the oldest are not summed."""

    def count_share(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        rows = [row for batch in batches for row in batch.to_pylist()]
        share = msgspec.msgpack.encode(_tally_of(rows, after, oldest_ms))
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([share], pyarrow.binary())], ["share"])
        freeze_long_lived_objects("counting")

    shares = facts.select(*_COLUMNS).mapInArrow(count_share, "share binary").collect()
    return reduce(_together, (_decode(share["share"]) for share in shares), Tally())


def _tally_of(all_rows: list[dict[str, Any]], after: StatisticsPlace, oldest_ms: int) -> Tally:
    rows = [row for row in all_rows if _place(row) > after]
    sound = [row for row in rows if row[FLAW] is None]
    facts = [_fact(row) for row in sound if row["at_ms"] >= oldest_ms]
    flaws = [(f"{row['job_id']}:{row['number']}:{row['at_ms']}", row[FLAW]) for row in rows if row[FLAW] is not None]
    return Tally(
        passed=len(all_rows) - len(rows),
        upto=max(map(_place, rows), default=BEFORE_ALL),
        days=_sums((row[DAY], 1) for row in sound),
        minutes=count(facts),
        leaders=count_leaders(facts),
        repaired=sum(row["repaired"] for row in sound),
        flawed=len(flaws),
        flaws=tuple(flaws[:MOST_FLAWS_SHOWN]),
    )


def _together(one: Tally, other: Tally) -> Tally:
    minutes = one.leaders.keys() | other.leaders.keys()
    leaders = {key: joined(one.leaders.get(key, Leaders()), other.leaders.get(key, Leaders())) for key in minutes}
    return Tally(
        passed=one.passed + other.passed,
        upto=max(one.upto, other.upto),
        days=_sums([*one.days.items(), *other.days.items()]),
        minutes=tuple(summed([*one.minutes, *other.minutes])),
        leaders=leaders,
        repaired=one.repaired + other.repaired,
        flawed=one.flawed + other.flawed,
        flaws=(one.flaws + other.flaws)[:MOST_FLAWS_SHOWN],
    )


def _sums(entries: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for name, amount in entries:
        sums[name] = sums.get(name, 0) + amount
    return sums


def _place(row: dict[str, Any]) -> StatisticsPlace:
    return StatisticsPlace(row["position"] or 0, row["job_id"] or "", row["number"] or 0, row["at_ms"] or 0)


def _fact(row: dict[str, Any]) -> Fact:
    return Fact(
        at_ms=row["at_ms"],
        outcome=AttemptOutcome(row["outcome"]),
        duration_ms=row["duration_ms"],
        was_sent=row["was_sent"],
        waited_ms=row["waited_ms"],
        pool=_named(row["pool"]),
        endpoint=_named(row["endpoint"]),
        subscription_id=_named(row["subscription_id"]),
        group_key=_named(row["group_key"]),
        repaired=row["repaired"],
    )


def _named(text: str | None) -> str | None:
    return None if text is None else named(text)
