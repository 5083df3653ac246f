"""A transaction on SQLite: one writer, so nothing is locked; lanes are asked one by one, which costs no round trip."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence

import msgspec

from penstock.domain.order import LaneKey
from penstock.jobs.queries import Dialect, queries, translated
from penstock.jobs.transaction import Row

_QUERIES = queries(Dialect.SQLITE)
_FIRST_BLOCKER = _QUERIES["first_blocker"]
_RUN_OF_ORDERED_LANE = _QUERIES["run_of_ordered_lane"]
_BEHIND_ALL = (2**63 - 1, 0, "")


class SqliteTransaction:
    """Statements on a connection that is inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.announced = False

    def all(self, statement: str, /, **values: object) -> list[Row]:
        """All rows of a statement."""
        return self._rows(_QUERIES[statement], values)

    def first(self, statement: str, /, **values: object) -> Row | None:
        """The first row of a statement."""
        rows = self.all(statement, **values)
        return rows[0] if rows else None

    def bulk(self, statement: str, rows: Sequence[Row]) -> None:
        """One statement for many rows."""
        self._connection.executemany(_QUERIES[statement], rows)

    def select(self, text: str, values: dict[str, object]) -> list[Row]:
        """The rows of a SELECT that was put together."""
        return self._rows(translated(text, Dialect.SQLITE), values)

    def _rows(self, text: str, values: dict[str, object]) -> list[Row]:
        return self._connection.execute(text, {name: _plain(value) for name, value in values.items()}).fetchall()

    def lock_lanes(self, group_keys: Collection[str]) -> None:
        """Nothing to do: there is no other writer."""

    def gate(self, *, exclusive: bool) -> None:
        """Nothing to do: there is no other writer."""

    def take_turns(self, count: int) -> list[int]:
        """So many numbers, each larger than all before."""
        ((last,),) = self.all("take_turns", count=count)
        return list(range(last - count + 1, last + 1))

    def runs(self, lanes: Sequence[LaneKey], now_ms: int, most: int) -> list[list[str]]:
        """Per lane the first jobs that may go, in order."""
        return [
            self._ordered_run(key, now_ms, most) if ordered else self._run(key, now_ms, most) for key, ordered in lanes
        ]

    def take_lanes(self, lanes: Mapping[LaneKey, int], owner: str, until_ms: int) -> list[Row]:
        """Claim lanes that still have the turn given with each."""
        claim = {"owner": owner, "until_ms": until_ms}
        return [
            row
            for (group_key, ordered), turn in lanes.items()
            for row in self.all("claim_lane", group_key=group_key, ordered=ordered, turn=turn, **claim)
        ]

    def finish_job(self, **values: object) -> bool:
        """End a delivery and keep its attempt."""
        if not self.all("finish_job", **values):
            return False
        self.all("add_attempt", **values)
        return True

    def announce(self) -> None:
        """Call whoever waits, after the commit."""
        self.announced = True

    def _ordered_run(self, group_key: str, now_ms: int, most: int) -> list[str]:
        execute = self._connection.execute
        blocker = execute(_FIRST_BLOCKER, {"group_key": group_key}).fetchone()
        sequence, created_at_ms, job_id = blocker or _BEHIND_ALL
        values = {
            "group_key": group_key,
            "now_ms": now_ms,
            "most": most,
            "sequence": sequence,
            "created_at_ms": created_at_ms,
            "id": job_id,
        }
        rows = execute(_RUN_OF_ORDERED_LANE, values).fetchall()
        # Two modes, each in order.
        rows.sort()
        return [row[2] for row in rows[:most]]

    def _run(self, group_key: str, now_ms: int, most: int) -> list[str]:
        rows = self.all("run_of_immediate_lane", group_key=group_key, now_ms=now_ms, most=most)
        return [row[2] for row in rows]


def _plain(value: object) -> object:
    return msgspec.json.encode(value).decode() if isinstance(value, list) else value
