"""The archive: finished jobs leave the table of jobs for it, and events are deleted with the last job they caused.

It is filled and dropped by the month.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from penstock.domain.order import LaneKey
from penstock.events.store.database import RepositoryPart, Transaction, writes
from penstock.events.store.repository.lanes import LaneOrigin, wake_lanes
from penstock.events.store.repository.numbering import forget_key_numbers
from penstock.events.store.statements import StoredState


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
        """The end of a partition's name."""
        return f"{self.year:04}_{self.number:02}"

    @classmethod
    def of(cls, at_ms: int) -> "Month":
        """Return the month of a moment."""
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        return cls(moment.year, moment.month)

    @classmethod
    def of_suffix(cls, name: str) -> "Month | None":
        """Return the month that a partition's name ends in; None for the partition of all other months."""
        year, _, number = name[-7:].partition("_")
        return cls(int(year), int(number)) if year.isdigit() and number.isdigit() else None


class JobArchive(RepositoryPart):
    """What leaves the tables as time passes."""

    async def archive_finished(self, before_ms: int, now_ms: int, most: int) -> int:
        """Move up to `most` jobs that were finished before a moment to the archive; return how many.

        An ERROR of a BLOCK_ON_ERROR job stays until it is retried or ignored.
        """
        await self._database.keep_months(now_ms)
        return await self._archive(before_ms, most)

    @writes
    def _archive(self, tx: Transaction, before_ms: int, most: int) -> int:
        rows = tx.all("archivable_jobs", before_ms=before_ms, most=most)
        if rows:
            ids = [row[0] for row in rows]
            tx.all("copy_to_archive", ids=ids)
            tx.all("drop_archived_from_jobs", ids=ids)
        errors = {
            LaneKey(group_key, True): LaneOrigin(subscription_id, pool)
            for _, group_key, subscription_id, pool, state in rows
            if state == StoredState.ERROR
        }
        wake_lanes(tx, errors)
        return len(rows)

    async def purge_archive(self, before_ms: int) -> None:
        """Drop archived jobs, and all attempts, of months that ended before a moment."""
        await self._database.drop_before(Month.of(before_ms).start_ms)

    @writes
    def forget_events(self, tx: Transaction, before_ms: int, most: int) -> int:
        """Delete up to `most` events received before a moment that no job outside the archive needs.

        Changes that people made before it are deleted too, and the numbers of keys without a job since. Return how many
        events and keys they were.
        """
        tx.all("forget_changes", before_ms=before_ms)
        keys = forget_key_numbers(tx, before_ms, most)
        ids = [event_id for (event_id,) in tx.all("old_events", before_ms=before_ms, most=most)]
        if ids:
            tx.all("delete_events", ids=ids)
        return len(ids) + keys
