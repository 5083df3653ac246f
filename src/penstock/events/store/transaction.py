"""What the operations on jobs need of a database: statements by name, and the few things the two do differently."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from penstock.domain.order import LaneKey
from penstock.events.store.lane_run import LaneContent

Row = tuple[Any, ...]


class Transaction(Protocol):
    """Work that is kept as a whole or not at all.

    Who moves jobs locks their lanes first, in the order of their keys: so no two wait for each other in a ring.
    """

    def all(self, statement: str, /, **values: object) -> list[Row]:
        """All rows of a statement; a list is one value."""
        ...

    def first(self, statement: str, /, **values: object) -> Row | None:
        """The first row of a statement."""
        ...

    def bulk(self, statement: str, rows: Sequence[Row]) -> None:
        """One statement for many rows."""
        ...

    def select(self, text: str, values: dict[str, object]) -> list[Row]:
        """The rows of a SELECT that was put together, in the words of sql/shared.sql."""
        ...

    def lock_lanes(self, group_keys: Collection[str]) -> None:
        """Hold the lanes of these groups until the end."""
        ...

    def gate(self, *, exclusive: bool) -> None:
        """Claims pass the gate together; what must not run beside a claim passes it alone."""
        ...

    def take_turns(self, count: int) -> list[int]:
        """So many numbers, each larger than all that were taken before."""
        ...

    def first_jobs(self, lanes: Sequence[LaneKey], now_ms: int, share: int) -> list[LaneContent]:
        """Per lane its first jobs, up to `share` of each mode, and its first blocker."""
        ...

    def take_lanes(self, lanes: Mapping[LaneKey, int], owner: str, until_ms: int) -> list[Row]:
        """Claim lanes that are nobody's or this owner's, and that still have the turn given with each; group key,
        whether it is ordered, and subscription of those that are its own now."""
        ...

    def finish_job(self, **values: object) -> bool:
        """End a delivery and keep its attempt, unless the job has moved on since."""
        ...

    def announce(self) -> None:
        """Once this is kept, wake whoever waits for jobs."""
        ...
