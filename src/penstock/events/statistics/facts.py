"""Delivery facts: the rules that turn an attempt and its job into one, and that reject impossible rows.

`history/lake/facts.py` has the same rules for DataFrames; tests/pipeline/test_facts_rules.py compares them.
"""

import re
from functools import lru_cache

import msgspec

from penstock.domain.limits import MINUTE_MS
from penstock.domain.outcome import AttemptOutcome

HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

EARLIEST_MS = 946_684_800_000
"""The year 2000: no delivery is older."""

LONGEST_MS = 7 * DAY_MS
"""A longer duration is a damaged number."""

LONGEST_WAIT_MS = 10 * 366 * DAY_MS

NAME_CHARACTERS = 200
"""Longer names are cut: both databases can index this many characters, and pages can show them."""

REASON_CHARACTERS = 200
OUTCOMES = tuple(outcome.value for outcome in AttemptOutcome)
# In the syntax that Python and Java share. The user name and the query may be secret.
ENDPOINT = r"^([a-zA-Z][a-zA-Z0-9+.\-]*://)(?:[^/?#@]*@)?([^?#]*)"
_endpoint = re.compile(ENDPOINT).match


class AttemptRow(msgspec.Struct, frozen=True, gc=False):
    """An attempt as a database may hold it: possibly damaged."""

    job_id: str | None
    number: int | None
    outcome: str | None
    at_ms: int | None
    duration_ms: int | None
    status_code: int | None = None
    error: str | None = None
    position: int = 0


class JobOrigin(msgspec.Struct, frozen=True, gc=False):
    """What never changes in an attempt's job."""

    id: str
    tenant: str
    type: str
    event_id: str | None
    subscription_id: str | None
    group_key: str
    pool: str
    target: str
    scheduled_for_ms: int | None
    created_at_ms: int


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A delivery that can be counted."""

    at_ms: int
    outcome: AttemptOutcome
    duration_ms: int
    was_sent: bool
    waited_ms: int | None
    pool: str | None
    endpoint: str | None
    subscription_id: str | None
    group_key: str | None
    repaired: bool

    @property
    def minute_ms(self) -> int:
        """Return the minute in which it began."""
        return self.at_ms - self.at_ms % MINUTE_MS


def latest_ms(now_ms: int) -> int:
    """Return the latest plausible time of an attempt: clocks differ, but not by days. It is constant for an hour."""
    return now_ms - now_ms % HOUR_MS + HOUR_MS + DAY_MS


def flaw_of(row: AttemptRow, now_ms: int) -> str | None:
    """Return why an attempt cannot be counted; None if it can."""
    if row.job_id is None or row.number is None or row.outcome is None or row.at_ms is None:
        return "its key, its time or its outcome is missing"
    if row.outcome not in OUTCOMES:
        return "its outcome is unknown"
    if row.at_ms < EARLIEST_MS:
        return "it is from before the year 2000"
    if row.at_ms > latest_ms(now_ms):
        return "it is more than a day in the future"
    return None


def fact_of(row: AttemptRow, job: JobOrigin | None) -> Fact:
    """Return the fact of a valid attempt, with its job if that is still known. Durations are clamped to the bounds."""
    assert row.at_ms is not None
    assert row.outcome is not None
    duration_ms = min(max(row.duration_ms or 0, 0), LONGEST_MS)
    return Fact(
        at_ms=row.at_ms,
        outcome=AttemptOutcome(row.outcome),
        duration_ms=duration_ms,
        was_sent=row.status_code is not None or duration_ms > 0,
        waited_ms=_waited_ms(row.at_ms, job) if row.number == 1 and job is not None else None,
        pool=None if job is None else named(job.pool),
        endpoint=None if job is None else endpoint_of(job.target),
        subscription_id=None if job is None or job.subscription_id is None else named(job.subscription_id),
        group_key=None if job is None else named(job.group_key),
        repaired=duration_ms != row.duration_ms,
    )


@lru_cache(maxsize=4096)
def endpoint_of(target: str) -> str:
    """Return a target without user name, query and fragment."""
    found = _endpoint(target)
    return named(found[1] + found[2] if found else re.split("[?#]", target, maxsplit=1)[0])


def named(text: str) -> str:
    """Return a text as a name in statistics: cut, and without NUL, which databases cannot store."""
    return text[:NAME_CHARACTERS].replace("\0", "\N{REPLACEMENT CHARACTER}")


def _waited_ms(at_ms: int, job: JobOrigin) -> int:
    might_go_ms = job.created_at_ms if job.scheduled_for_ms is None else job.scheduled_for_ms
    return min(max(at_ms - might_go_ms, 0), LONGEST_WAIT_MS)
