"""A transaction on PostgreSQL: lanes are locked, and many rows travel as one array per column."""

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from penstock.domain.order import LaneKey
from penstock.engine.store.postgres_address import Session
from penstock.jobs.queries import Dialect, queries, translated
from penstock.jobs.transaction import Row

_QUERIES = queries(Dialect.POSTGRES)
_GATE = int.from_bytes(blake2b(b"penstock jobs: claims", digest_size=8).digest(), "big", signed=True)


class PostgresTransaction:
    """Statements on a connection."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.announced = False

    def all(self, statement: str, /, **values: object) -> list[Row]:
        """All rows of a statement."""
        return self._run(_QUERIES[statement], values)

    def first(self, statement: str, /, **values: object) -> Row | None:
        """The first row of a statement."""
        rows = self.all(statement, **values)
        return rows[0] if rows else None

    def bulk(self, statement: str, rows: Sequence[Row]) -> None:
        """One statement for many rows."""
        if rows:
            self._run(_QUERIES[statement], [list(column) for column in zip(*rows, strict=True)])

    def select(self, text: str, values: dict[str, object]) -> list[Row]:
        """The rows of a SELECT that was put together."""
        return self._run(translated(text, Dialect.POSTGRES), values)

    def lock_lanes(self, group_keys: Collection[str]) -> None:
        """Hold the lanes of these groups until the end."""
        self.all("lock_lanes", group_keys=list(group_keys))

    def gate(self, *, exclusive: bool) -> None:
        """Claims pass together, what must not run beside a claim passes alone."""
        self.all("gate_exclusive" if exclusive else "gate_shared", key=_GATE)

    def take_turns(self, count: int) -> list[int]:
        """So many numbers, each larger than all before."""
        return [turn for (turn,) in self.all("take_turns", count=count)]

    def runs(self, lanes: Sequence[LaneKey], now_ms: int, most: int) -> list[list[str]]:
        """Per lane the first jobs that may go, in order."""
        runs: list[list[str]] = [[] for _ in lanes]
        for name, ordered in (("runs_of_ordered_lanes", True), ("runs_of_immediate_lanes", False)):
            places = [place for place, lane in enumerate(lanes) if bool(lane.ordered) is ordered]
            if places:
                keys = [lanes[place].group_key for place in places]
                for number, _, _, job_id in self.all(name, group_keys=keys, now_ms=now_ms, most=most):
                    runs[places[number - 1]].append(job_id)
        return runs

    def take_lanes(self, lanes: Mapping[LaneKey, int], owner: str, until_ms: int) -> list[Row]:
        """Claim lanes that still have the turn given with each."""
        columns = {
            "group_keys": [lane.group_key for lane in lanes],
            "ordereds": [lane.ordered for lane in lanes],
            "turns": list(lanes.values()),
        }
        return self.all("claim_lanes", owner=owner, until_ms=until_ms, **columns)

    def finish_job(self, **values: object) -> bool:
        """End a delivery and keep its attempt, in one statement."""
        return bool(self.all("finish_job", **values))

    def announce(self) -> None:
        """Call whoever waits, in any process, after the commit."""
        if not self.announced:
            self.announced = True
            self.all("notify")

    def _run(self, text: str, values: Any) -> list[Row]:
        cursor = self._session.execute(text, values or None, binary=True)
        return cursor.fetchall() if cursor.description is not None else []
