"""What an operator looks at: groups that are held up, the lane of one of them, and what was finished lately.

How long the oldest has waited, whichever engine runs: asked of the database, as that is where jobs wait.
"""

from typing import cast

import msgspec

from penstock.domain.job import DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.events.store.statements import JOB_COLUMNS, STATUS_OF, job_of
from penstock.events.store.transaction import Transaction

FinishedPlace = tuple[int, str]
"""When a job was finished, and its id: what was finished lately stands in this order, the last one first."""

THE_NEWEST: FinishedPlace = (2**62, "")
"""The place before all others."""

_COLUMNS = ", ".join("NULL AS payload" if name == "payload" else name for name in JOB_COLUMNS)

_HELD = """
SELECT group_key, min(subscription_id), sum(CASE WHEN state = {ERROR} THEN 1 ELSE 0 END), count(*), min(updated_at_ms)
FROM jobs
WHERE {blocking jobs} AND mode = {BLOCK_ON_ERROR}
"""
_HELD_BY_KEY = _HELD + "AND group_key > :after GROUP BY group_key ORDER BY group_key LIMIT :most"
_MOST_URGENT = _HELD + "GROUP BY group_key ORDER BY 3 DESC, 5, 1 LIMIT :most"
_LANE = f"""
SELECT {_COLUMNS} FROM jobs
WHERE group_key = :group_key AND state IN ({{WAITING}}, {{READY}}, {{QUEUED}}, {{PROCESSING}}, {{ERROR}})
ORDER BY {{position jobs}} LIMIT :most
"""
_COUNTS = "SELECT state, count(*) FROM jobs WHERE group_key = :group_key GROUP BY state"
# What the index jobs_finished holds.
_FINISHED = """
SELECT j.id, j.group_key, j.group_name, j.subscription_id, j.pool, j.type, j.state, j.created_at_ms, j.finished_at_ms,
    j.delivery_count, a.duration_ms, a.status_code
FROM (
    SELECT * FROM jobs
    WHERE finished_at_ms IS NOT NULL AND (state <> {ERROR} OR mode <> {BLOCK_ON_ERROR})
      AND finished_at_ms > :since_ms AND finished_at_ms <= :before_ms
      AND (finished_at_ms < :before_ms OR id < :before_id)
    ORDER BY finished_at_ms DESC, id DESC LIMIT :most
) AS j LEFT JOIN attempts AS a ON a.job_id = j.id AND a.number = j.delivery_count
ORDER BY j.finished_at_ms DESC, j.id DESC
"""


class HeldGroup(msgspec.Struct, frozen=True):
    """A group whose jobs wait for one that failed: given up, or waiting for its next attempt."""

    group_key: str
    subscription_id: str | None
    errors: int
    holding: int
    """Jobs that others wait for, those in ERROR and those that wait for their next attempt."""
    since_ms: int

    @property
    def retrying(self) -> int:
        """Jobs that wait for their next attempt."""
        return self.holding - self.errors


class LaneState(msgspec.Struct, frozen=True):
    """The jobs of a group that are not over, in the order of their delivery, and how many there are of each status."""

    jobs: list[DispatchJob]
    counts: dict[JobStatus, int]


class FinishedJob(msgspec.Struct, frozen=True, rename="camel"):
    """A job that is over, and its last delivery."""

    id: str
    group_key: str
    group: str | None
    subscription_id: str | None
    pool: str
    type: str
    status: JobStatus
    created_at_ms: int
    finished_at_ms: int
    deliveries: int
    duration_ms: int | None
    status_code: int | None


def held_groups(tx: Transaction, after: str, most: int) -> list[HeldGroup]:
    """Groups that are held up and come after a key, in the order of their keys."""
    return [HeldGroup(*row) for row in tx.select(_HELD_BY_KEY, {"after": after, "most": most})]


def most_urgent_groups(tx: Transaction, most: int) -> list[HeldGroup]:
    """Groups that are held up, those in ERROR first, then the longest held."""
    return [HeldGroup(*row) for row in tx.select(_MOST_URGENT, {"most": most})]


def lane_of(tx: Transaction, group_key: str, most: int) -> LaneState:
    """The first jobs of a group's lane."""
    counts = dict.fromkeys(JobStatus, 0)
    for state, count in tx.select(_COUNTS, {"group_key": group_key}):
        counts[STATUS_OF[state]] += cast("int", count)
    return LaneState([job_of(row) for row in tx.select(_LANE, {"group_key": group_key, "most": most})], counts)


def finished_lately(tx: Transaction, since_ms: int, before: FinishedPlace, most: int) -> list[FinishedJob]:
    """Jobs that were finished after a moment and stand behind a place, the last one first.

    Errors that block a group are not over.
    """
    before_ms, before_id = before
    values = {"since_ms": since_ms, "before_ms": before_ms, "before_id": before_id, "most": most}
    rows = tx.select(_FINISHED, values)
    return [FinishedJob(*(*row[:6], STATUS_OF[row[6]], *row[7:])) for row in rows]


_MOST_LOOKED_AT = 200


class OldestWaiting(msgspec.Struct, frozen=True):
    """Since when the oldest of its kind waits, in milliseconds since the Unix epoch; None if there is none."""

    since_ms: int | None = None
    """Of what only waits for its turn: events to become jobs, due jobs to be delivered."""
    held_since_ms: int | None = None
    """Of due jobs that something holds: an earlier one of their group, or a pause of their subscription."""


def oldest_waiting(tx: Transaction, now_ms: int) -> OldestWaiting:
    """Since when the oldest waits."""
    found = {bool(held): since_ms for held, since_ms in tx.all("oldest_waiting", now_ms=now_ms, most=_MOST_LOOKED_AT)}
    return OldestWaiting(found.get(False), found.get(True))
