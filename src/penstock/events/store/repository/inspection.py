"""What an operator looks at: groups that are held up, the lane of one of them, what was finished lately, how long the
oldest has waited.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from penstock.domain.job import Attempt, DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.events.store.database import RepositoryPart, Transaction, reads
from penstock.events.store.statements import STATUS_OF, attempt_of, counts_of, job_of

FinishedPlace = tuple[int, str]
"""When a job was finished, and its id: finished jobs are listed in this order, the last one first."""

THE_NEWEST: FinishedPlace = (2**62, "")
"""The place before all others."""

_MOST_LOOKED_AT = 200
_NONE: Mapping[str | None, int] = MappingProxyType({})

COUNTED_JOBS = 1000
"""How many of a subscription's jobs of each kind are counted."""

_AFTER_ALL_KEYS = "\U0010ffff"
_MOST_UNDER_WAY = 20_000
_OLDEST_READY = 2000


class HeldGroup(msgspec.Struct, frozen=True):
    """A group whose jobs wait for one that failed: given up, or waiting for its next attempt."""

    group_key: str
    subscription_id: str | None
    errors: int
    holding: int
    """Jobs that others wait for, those in ERROR and those that wait for their next attempt."""
    since_ms: int
    waiting: int = 0
    """Jobs in line behind them, counted up to COUNTED_JOBS."""

    @property
    def retrying(self) -> int:
        """Jobs that wait for their next attempt."""
        return self.holding - self.errors


class FailedDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that failed, and the job it was for."""

    job_id: str
    event_id: str | None
    group: str | None
    group_key: str
    type: str
    target: str
    attempt: Attempt


class LaneState(msgspec.Struct, frozen=True):
    """The unfinished jobs of a group, in the order of their delivery, and how many jobs have each status."""

    jobs: list[DispatchJob]
    counts: dict[JobStatus, int]


class FinishedJob(msgspec.Struct, frozen=True, rename="camel"):
    """A finished job, and its last delivery."""

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


class OldestWaiting(msgspec.Struct, frozen=True):
    """Since when the oldest of its kind waits, in milliseconds since the Unix epoch; None if there is none."""

    since_ms: int | None = None
    """Of what only waits for its turn: events to become jobs, due jobs to be delivered."""
    held_since_ms: int | None = None
    """Of due jobs that something holds: an earlier one of their group, or a pause of their subscription."""
    by_subscription: Mapping[str | None, int] = _NONE
    """The first, by subscription: of the empty id for jobs without one, of None for events to become jobs."""


class SubscriptionLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for a subscription, and what holds it up. Each number is counted up to COUNTED_JOBS."""

    ready: int = 0
    under_way: int = 0
    to_retry: int = 0
    due_since_ms: int | None = None
    """Since when the oldest of the counted ones is due."""
    waits_since_ms: int | None = None
    """The same of those that no failed job of their key and no pause holds: they only wait for their turn."""
    blocked_groups: int = 0
    """Groups that wait for a job in ERROR."""
    retrying_groups: int = 0
    """Groups that wait for a job that is tried again."""
    blocked_since_ms: int | None = None

    @property
    def backlog(self) -> int:
        """Return the number of jobs that should be delivered."""
        return self.ready + self.under_way + self.to_retry


class JobInspection(RepositoryPart):
    """How groups, lanes and jobs stand."""

    @reads
    def held_groups(
        self, tx: Transaction, after: str, most: int, subscription_id: str | None = None
    ) -> list[HeldGroup]:
        """Return groups that wait for a job that failed and come after a key, in the order of their keys."""
        first, before = _keys_of(subscription_id)
        rows = tx.all("held_groups", after=max(after, first), before=before, counted=COUNTED_JOBS, most=most)
        return [HeldGroup(*row) for row in rows]

    @reads
    def most_urgent_groups(self, tx: Transaction, most: int, subscription_id: str | None = None) -> list[HeldGroup]:
        """Return groups that wait for a job that failed, those in ERROR first, then the longest held."""
        after, before = _keys_of(subscription_id)
        rows = tx.all("most_urgent_groups", after=after, before=before, counted=COUNTED_JOBS, most=most)
        return [HeldGroup(*row) for row in rows]

    @reads
    def recent_failures(self, tx: Transaction, subscription_id: str, most: int) -> list[FailedDelivery]:
        """Return failed deliveries of a subscription, the newest first, as far as its newest jobs have any.

        Those of jobs that still hold others back are included, whatever their age.
        """
        after, before = _keys_of(subscription_id)
        asked = {"subscription_id": subscription_id, "after": after, "before": before}
        rows = tx.all("failures_of_subscription", **asked, newest=COUNTED_JOBS, most=most)
        return [
            FailedDelivery(
                job_id=job_id,
                event_id=event_id,
                group=group,
                group_key=group_key,
                type=kind,
                target=target,
                attempt=attempt_of(tuple(attempt)),
            )
            for job_id, event_id, group, group_key, kind, target, *attempt in rows
        ]

    @reads
    def lane_of(self, tx: Transaction, group_key: str, most: int) -> LaneState:
        """Return the first unfinished jobs of a group, in order, and its counts."""
        counts = counts_of(tx.all("counts_of_group", group_key=group_key))
        jobs = [job_of(row) for row in tx.all("unfinished_of_group", group_key=group_key, most=most)]
        return LaneState(jobs, counts)

    @reads
    def finished_lately(self, tx: Transaction, since_ms: int, before: FinishedPlace, most: int) -> list[FinishedJob]:
        """Return jobs finished after a moment that stand behind a place, the last one first.

        Errors that block a group are not finished.
        """
        before_ms, before_id = before
        rows = tx.all("finished_jobs", since_ms=since_ms, before_ms=before_ms, before_id=before_id, most=most)
        return [FinishedJob(*(*row[:6], STATUS_OF[row[6]], *row[7:])) for row in rows]

    @reads
    def oldest_waiting(self, tx: Transaction, now_ms: int) -> OldestWaiting:
        """Return since when the oldest waits, looked up in indexes: cheap enough to ask often."""
        rows = tx.all("oldest_waiting", now_ms=now_ms, most=_MOST_LOOKED_AT)
        held = [since_ms for is_held, _, since_ms in rows if is_held]
        waiting = {key: since_ms for is_held, key, since_ms in rows if not is_held and since_ms is not None}
        return OldestWaiting(min(waiting.values(), default=None), min(held, default=None), waiting)

    @reads
    def subscription_loads(self, tx: Transaction, now_ms: int) -> dict[str, SubscriptionLoad]:
        """Return what waits for each subscription, by id; jobs without one are under the empty id."""
        loads: dict[str, SubscriptionLoad] = {
            key: SubscriptionLoad(ready=ready, due_since_ms=since_ms, waits_since_ms=waits_ms)
            for key, ready, since_ms, waits_ms in tx.all("loads_of_subscriptions", most=COUNTED_JOBS)
        }
        for key, since_ms in tx.all("oldest_ready", most=_OLDEST_READY):
            known = loads.get(key, SubscriptionLoad())
            loads[key] = msgspec.structs.replace(known, due_since_ms=_older(known.due_since_ms, since_ms))
        for key, count, since_ms in tx.all("jobs_under_way", most=_MOST_UNDER_WAY):
            known = _waiting(loads.get(key, SubscriptionLoad()), since_ms)
            loads[key] = msgspec.structs.replace(known, under_way=min(count, COUNTED_JOBS))
        for key, count, since_ms in tx.all("jobs_to_retry", now_ms=now_ms, most=_MOST_UNDER_WAY):
            known = _waiting(loads.get(key, SubscriptionLoad()), since_ms)
            loads[key] = msgspec.structs.replace(known, to_retry=min(count, COUNTED_JOBS))
        for key, blocked, held, since_ms in tx.all("blocked_groups_of_subscriptions"):
            known = loads.get(key, SubscriptionLoad())
            loads[key] = msgspec.structs.replace(
                known, blocked_groups=int(blocked), retrying_groups=held - int(blocked), blocked_since_ms=since_ms
            )
        return loads


def _keys_of(subscription_id: str | None) -> tuple[str, str]:
    """Return the bounds of the group keys of a subscription, or of all groups."""
    return ("", _AFTER_ALL_KEYS) if subscription_id is None else (f"{subscription_id}:", f"{subscription_id};")


def _waiting(load: SubscriptionLoad, since_ms: int | None) -> SubscriptionLoad:
    return msgspec.structs.replace(
        load,
        due_since_ms=_older(load.due_since_ms, since_ms),
        waits_since_ms=_older(load.waits_since_ms, since_ms),
    )


def _older(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((each for each in (one_ms, other_ms) if each is not None), default=None)
