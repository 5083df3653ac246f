"""Forgetting: everything that belongs to a key, a tenant or a subscription leaves the tables and the archive.

Events go first, so that nothing can be made of them any more; then jobs with their attempts. Each step is a transaction
of its own, so that deliveries go on meanwhile, and all of it may be repeated.
"""

from collections.abc import Collection

import msgspec

from penstock.domain.errors import InvalidArgument
from penstock.domain.order import LaneKey
from penstock.events.statistics import Leaders
from penstock.events.store.database import RepositoryPart, Row, Transaction, reads, writes
from penstock.events.store.repository.lanes import LaneOrigin, wake_lanes, wake_waiting
from penstock.events.store.statements import StoredMode

AT_ONCE = 1000
"""How many events or jobs one transaction deletes."""

_LEADERS = msgspec.json.Decoder(Leaders).decode
_encode = msgspec.json.encode


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whose rows are meant: all given fields must match. Events belong to no subscription."""

    key: str | None = None
    tenant: str | None = None
    subscription_id: str | None = None

    def __post_init__(self) -> None:
        if (self.key, self.tenant, self.subscription_id) == (None, None, None):
            raise InvalidArgument("say whom to forget: a key, a tenant or a subscription")


class SubjectCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows belong to a subject; `unfinished` of the jobs have not ended."""

    events: int
    jobs: int
    unfinished: int
    archived_jobs: int
    attempts: int

    @property
    def any(self) -> bool:
        """Return whether there are any."""
        return bool(self.events or self.jobs or self.archived_jobs or self.attempts)


class Erasure(RepositoryPart):
    """Counts and deletes what belongs to a subject."""

    @reads
    def count_subject(self, tx: Transaction, subject: Subject) -> SubjectCounts:
        """Count what there is; it reads whole tables."""
        events, jobs, unfinished, archived, attempts = tx.all("subject_counts", **msgspec.structs.asdict(subject))[0]
        return SubjectCounts(events=events, jobs=jobs, unfinished=unfinished, archived_jobs=archived, attempts=attempts)

    async def forget(self, subject: Subject) -> None:
        """Delete all of it. A job on its way may still reach its endpoint once; it leaves nothing behind."""
        groups: set[str] = set()
        for delete in (self._delete_events, self._delete_jobs, self._delete_archived):
            after: str | None = ""
            while after is not None:
                after = await delete(subject, after, groups)
        await self._forget_key_numbers(subject)
        await self._forget_leaders(subject, groups)

    @writes
    def _delete_events(self, tx: Transaction, subject: Subject, after: str, _: set[str]) -> str | None:
        rows = _next(tx, "subject_events", subject, after)
        ids = [row[0] for row in rows]
        if ids:
            tx.all("delete_events", ids=ids)
            tx.all("delete_set_aside", ids=ids)
        return _last(rows)

    @writes
    def _delete_jobs(self, tx: Transaction, subject: Subject, after: str, groups: set[str]) -> str | None:
        rows = _next(tx, "subject_jobs", subject, after)
        ids = [row[0] for row in rows]
        if ids:
            groups.update(row[1] for row in rows)
            tx.lock_lanes({row[1] for row in rows})
            _delete_of_jobs(tx, ids)
            tx.all("drop_archived_from_jobs", ids=ids)
            # What stood behind one of them may go now; a lane that is empty is dropped when it is looked at.
            wake_lanes(
                tx,
                {
                    LaneKey(group_key, mode != StoredMode.IMMEDIATE): LaneOrigin(subscription_id, pool)
                    for _, group_key, mode, subscription_id, pool in rows
                },
            )
            wake_waiting(tx, ids)
        return _last(rows)

    @writes
    def _delete_archived(self, tx: Transaction, subject: Subject, after: str, groups: set[str]) -> str | None:
        rows = _next(tx, "subject_archived_jobs", subject, after)
        ids = [row[0] for row in rows]
        if ids:
            groups.update(row[1] for row in rows)
            _delete_of_jobs(tx, ids)
            tx.all("delete_archived_jobs", ids=ids)
        return _last(rows)

    @writes
    def _forget_key_numbers(self, tx: Transaction, subject: Subject) -> None:
        tx.all("delete_key_sequences", **msgspec.structs.asdict(subject))

    @writes
    def _forget_leaders(self, tx: Transaction, subject: Subject, groups: Collection[str]) -> None:
        """Take the groups out of the statistics, which name the busiest ones of each minute."""
        changed = []
        for minute_ms, text in tx.all("all_leaders"):
            leaders = _LEADERS(text)
            held = tuple(each for each in leaders.held if not _is_of(each.group_key, subject, groups))
            if len(held) < len(leaders.held):
                changed.append((minute_ms, _encode(msgspec.structs.replace(leaders, held=held)).decode()))
        if changed:
            tx.bulk("put_leaders", changed)


def _next(tx: Transaction, statement: str, subject: Subject, after: str) -> list[Row]:
    return tx.all(statement, after=after, most=AT_ONCE, **msgspec.structs.asdict(subject))


def _last(rows: list[Row]) -> str | None:
    return rows[-1][0] if len(rows) == AT_ONCE else None


def _delete_of_jobs(tx: Transaction, ids: list[str]) -> None:
    for statement in ("delete_attempts", "delete_replay_attempts", "delete_replay_copies", "delete_set_aside"):
        tx.all(statement, ids=ids)


def _is_of(group_key: str, subject: Subject, groups: Collection[str]) -> bool:
    """Return whether a group is of the deleted jobs, or by its name of the subject, whose jobs may be gone long ago."""
    if group_key in groups:
        return True
    if subject.tenant is not None or subject.key is None:
        return subject.subscription_id is not None and group_key.startswith(f"{subject.subscription_id}:")
    if subject.subscription_id is not None:
        return group_key == f"{subject.subscription_id}:{subject.key}"
    return group_key == subject.key or group_key.endswith(f":{subject.key}")
