"""Months of the archive: it is filled and dropped by the month."""

from datetime import UTC, datetime
from typing import NamedTuple


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
