"""Finished jobs leave the table of jobs for the archive, and events leave with the last job they caused.

Months of the archive: it is filled and dropped by the month.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from penstock.domain.order import LaneKey
from penstock.events.store.lanes import wake_lanes
from penstock.events.store.statements import StoredState
from penstock.events.store.transaction import Transaction


def archive_finished(tx: Transaction, before_ms: int, most: int) -> int:
    """Move jobs that were finished before to the archive, at most so many; how many."""
    rows = tx.all("archivable_jobs", before_ms=before_ms, most=most)
    if rows:
        ids = [row[0] for row in rows]
        tx.all("copy_to_archive", ids=ids)
        tx.all("drop_archived_from_jobs", ids=ids)
    errors = {LaneKey(group_key, True): sub for _, group_key, sub, state in rows if state == StoredState.ERROR}
    wake_lanes(tx, errors)
    return len(rows)


def forget_events(tx: Transaction, before_ms: int, most: int) -> int:
    """Delete events received before that no job needs any more, at most so many, and changes made before; how many."""
    tx.all("forget_changes", before_ms=before_ms)
    ids = [event_id for (event_id,) in tx.all("old_events", before_ms=before_ms, most=most)]
    if ids:
        tx.all("delete_events", ids=ids)
    return len(ids)


class Month(NamedTuple):
    """A month of the calendar, in UTC."""

    year: int
    number: int

    @property
    def next(self) -> "Month":
        """The month after."""
        return Month(self.year + 1, 1) if self.number == 12 else Month(self.year, self.number + 1)

    @property
    def start_ms(self) -> int:
        """Its first millisecond."""
        return int(datetime(self.year, self.number, 1, tzinfo=UTC).timestamp()) * 1000

    @property
    def suffix(self) -> str:
        """How a partition's name ends."""
        return f"{self.year:04}_{self.number:02}"

    @classmethod
    def of(cls, at_ms: int) -> "Month":
        """The month of a moment."""
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        return cls(moment.year, moment.month)

    @classmethod
    def of_suffix(cls, name: str) -> "Month | None":
        """The month a partition's name ends in; None for the partition of all other months."""
        year, _, number = name[-7:].partition("_")
        return cls(int(year), int(number)) if year.isdigit() and number.isdigit() else None
