"""Where a stream stands: everything up to a place is read, and nothing after it.

PostgreSQL: a row's position comes from the transaction that wrote it, and a stream reads only below the oldest
transaction that still runs. So a transaction that commits late is read late, never passed. The row's key orders the
rows of one transaction, so that a batch can end anywhere. A transaction that stays open holds all streams back.
SQLite: positions are counted, and with one writer at a time they become visible in order.
"""

from collections.abc import Mapping

import msgspec


class Place(msgspec.Struct, frozen=True, order=True):
    """A row's place in a stream; with an empty key, the place before the first row of that position."""

    position: int
    key: str = ""

    @property
    def offset(self) -> dict[str, int | str]:
        """As Spark keeps it."""
        return {"position": self.position, "key": self.key}

    @staticmethod
    def of_offset(offset: "Mapping[str, int | str]") -> "Place":
        """As Spark gives it back."""
        return msgspec.convert(offset, Place)


START = Place(-1)
"""Before all rows."""


class Outlook(msgspec.Struct, frozen=True):
    """What a stream can read: all below `horizon`; `last` is the row a limit ends at, if there are so many."""

    horizon: int
    reached: int
    any: bool
    last: Place | None

    def end(self, start: Place, until: Place | None) -> Place:
        """Where the next batch ends; `start` if there is nothing to read."""
        if not self.any:
            return start
        end = Place(self.horizon) if self.last is None else self.last
        return end if until is None else max(start, min(end, until))
