"""Facts counted: the rows of their minutes, and the leading groups. Pure; the inline engine's half of the rules."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec

from penstock.domain.job import AttemptOutcome
from penstock.domain.sketch import Histogram
from penstock.jobs.statistics import LATENCY_BOUNDS_MS, NONE, Dimension, Minute
from penstock.jobs.statistics_facts import Fact
from penstock.jobs.statistics_leaders import Leader, Leaders, leading


class Place(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Where an attempt stands in the order in which attempts are counted."""

    position: int
    job_id: str
    number: int
    at_ms: int


BEFORE_ALL = Place(-1, "", 0, 0)


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch of attempts adds to the statistics; `upto` is its last attempt."""

    upto: Place
    minutes: tuple[Minute, ...] = ()
    leaders: Mapping[int, Leaders] = {}
    """By minute."""
    rows: int = 0
    set_aside: int = 0
    repaired: int = 0


def count(facts: Iterable[Fact]) -> tuple[Minute, ...]:
    """The row of each minute, dimension and name."""
    shares: dict[tuple[int, Dimension, str], list[Fact]] = defaultdict(list)
    for fact in facts:
        for by, name in _names(fact):
            shares[fact.minute_ms, by, name].append(fact)
    return tuple(_row(minute_ms, by, name, share) for (minute_ms, by, name), share in sorted(shares.items()))


def count_leaders(facts: Iterable[Fact]) -> dict[int, Leaders]:
    """The leading groups of each minute."""
    groups: dict[int, dict[str, Leader]] = defaultdict(dict)
    for fact in facts:
        if fact.group_key is not None:
            known = groups[fact.minute_ms].get(fact.group_key, Leader(fact.group_key, 0))
            groups[fact.minute_ms][fact.group_key] = Leader(
                known.group_key,
                known.attempts + 1,
                0,
                known.failed + _failed(fact),
                known.busy_ms + fact.duration_ms,
            )
    return {minute_ms: leading(counted.values()) for minute_ms, counted in groups.items()}


def _names(fact: Fact) -> Iterable[tuple[Dimension, str]]:
    yield Dimension.POOL, fact.pool or NONE
    yield Dimension.ENDPOINT, fact.endpoint or NONE
    yield Dimension.SUBSCRIPTION, fact.subscription_id or NONE


def _failed(fact: Fact) -> int:
    return int(fact.outcome in (AttemptOutcome.FAILED, AttemptOutcome.REFUSED))


def _row(minute_ms: int, by: Dimension, name: str, facts: list[Fact]) -> Minute:
    latency = Histogram(LATENCY_BOUNDS_MS)
    for fact in facts:
        if fact.was_sent:
            latency.observe(fact.duration_ms)
    outcomes = [fact.outcome for fact in facts]
    waits = [fact.waited_ms for fact in facts if fact.waited_ms is not None]
    return Minute(
        minute_ms=minute_ms,
        by=by,
        name=name,
        delivered=outcomes.count(AttemptOutcome.DELIVERED),
        failed=outcomes.count(AttemptOutcome.FAILED),
        refused=outcomes.count(AttemptOutcome.REFUSED),
        deferred=outcomes.count(AttemptOutcome.DEFERRED),
        busy_ms=sum(fact.duration_ms for fact in facts),
        latency=tuple(upto - below for below, upto in pairwise((0, *latency.cumulative()))),
        waits=len(waits),
        waited_ms=sum(waits),
        longest_wait_ms=max(waits, default=0),
    )
