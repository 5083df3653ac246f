"""A transaction on a connection to SQLite.

Lanes are read one by one, which costs no round trip here.
"""

import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain

import msgspec

from penstock.domain.order import LaneKey, Position
from penstock.domain.pace.credit import AwakeStream
from penstock.events.store.database import LaneContent, LaneJob, LaneQuestion, Row, Statement
from penstock.events.store.statements import MODE_OF, Dialect, StoredMode, queries, translated

_QUERIES = queries(Dialect.SQLITE)
_FIRST_BLOCKER = _QUERIES["first_blocker"]
_FIRST_JOBS = _QUERIES["first_jobs"]
_ON_ITS_WAY = _QUERIES["lane_on_its_way"]
_VALUES = re.compile(r"VALUES (\([^()]*\))")
_CHUNKS = (64, 8)
_MODES = {True: (StoredMode.BLOCK_ON_ERROR, StoredMode.NEXT_ON_ERROR), False: (StoredMode.IMMEDIATE,)}


class SqliteTransaction:
    """Statements on a connection that is inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.announced = False
        self.overwrites = False

    def all(self, statement: str, /, **values: object) -> list[Row]:
        """Return all rows of a statement."""
        return self._rows(_QUERIES[statement], values)

    def first(self, statement: str, /, **values: object) -> Row | None:
        """Return the first row of a statement."""
        rows = self.all(statement, **values)
        return rows[0] if rows else None

    def bulk(self, statement: str, rows: Sequence[Row]) -> int:
        """Run one statement for many rows; return how many it wrote."""
        connection = self._connection
        before = connection.total_changes
        for text, values in _in_chunks(statement, rows):
            connection.executemany(text, values)
        return connection.total_changes - before

    def load_jobs(self, rows: Sequence[Row]) -> None:
        """Add many jobs, row by row: before a statement of many rows SQLite copies each page that it will write."""
        self._connection.executemany(_QUERIES["insert_jobs"], rows)

    def select(self, text: str, values: dict[str, object]) -> list[Row]:
        """Return the rows of a SELECT that was put together."""
        return self._rows(translated(text, Dialect.SQLITE), values)

    def _rows(self, text: str, values: dict[str, object]) -> list[Row]:
        return self._connection.execute(text, {name: _plain(value) for name, value in values.items()}).fetchall()

    def lock_lanes(self, group_keys: Collection[str]) -> None:
        """Nothing to do: there is no other writer."""

    def gate(self, *, exclusive: bool) -> None:
        """Nothing to do: there is no other writer."""

    def overwrite_replaced(self) -> None:
        """Fill what is replaced with zeros, where SQLite does not do so by itself; the log is emptied afterwards."""
        self._connection.execute("PRAGMA secure_delete = ON")
        self.overwrites = True

    def take_key_numbers(
        self, counts: Mapping[tuple[str, str], int], tenants: Mapping[tuple[str, str], str], day: int
    ) -> list[Row]:
        """Take numbers for keys of subscriptions; return subscription, key and the last number of each."""
        keys = [(*key, tenants[key], count) for key, count in counts.items()]
        return self.all("take_key_numbers", keys=keys, day=day)

    def take_turns(self, count: int) -> list[int]:
        """Return `count` numbers, each larger than all before."""
        ((last,),) = self.all("take_turns", count=count)
        return list(range(last - count + 1, last + 1))

    def first_jobs(self, lanes: Sequence[LaneQuestion], now_ms: int, lane_credit: int) -> list[LaneContent]:
        """Return the first jobs of each lane, its share of each mode, its first blocker, and what is on its way."""
        return [self._content(lane, now_ms, lane_credit) for lane in lanes]

    def awake_streams(self) -> list[tuple[AwakeStream, int]]:
        """Return the streams with lanes that are awake, each with its first turn."""
        found: list[tuple[AwakeStream, int]] = []
        after = AwakeStream("", "")
        while rows := self.all("next_stream", pool=after.pool, subscription=after.subscription):
            ((pool, subscription, turn),) = rows
            after = AwakeStream(pool, subscription)
            found.append((after, turn))
        return found

    def awake_lanes(self, streams: Mapping[AwakeStream, int]) -> list[Row]:
        """Return the first lanes of streams."""
        return [
            row
            for (pool, subscription), most in streams.items()
            for row in self.all("awake_lanes_of_stream", pool=pool, subscription=subscription, most=most)
        ]

    def jobs_on_their_way(self, pools: Mapping[str, int]) -> list[tuple[str, str, int]]:
        """Return how many QUEUED and PROCESSING jobs each subscription has in pools."""
        return [
            (pool, subscription, count)
            for pool, most in pools.items()
            for subscription, count in self.all("jobs_on_their_way", pool=pool, most=most)
        ]

    def awake_ranges(self, streams: Mapping[AwakeStream, int]) -> list[tuple[str, str, int, int, int]]:
        """Return the turns of the first lanes of streams."""
        return [
            (pool, subscription, first, last, lanes)
            for (pool, subscription), most in streams.items()
            for first, last, lanes in self.all("awake_range_of_stream", pool=pool, subscription=subscription, most=most)
            if lanes
        ]

    def take_lanes(self, lanes: Mapping[LaneKey, int], owner: str, until_ms: int) -> list[Row]:
        """Claim lanes that still have the turn given with each."""
        wanted = [(group_key, int(ordered), turn) for (group_key, ordered), turn in lanes.items()]
        return self.all("claim_lanes", lanes=wanted, owner=owner, until_ms=until_ms)

    def together(self, *statements: Statement) -> list[list[Row]]:
        """Return the rows of several statements."""
        return [self.all(name, **values) for name, values in statements]

    def finish_jobs(self, rows: Sequence[Row]) -> list[Row]:
        """End deliveries and keep their attempts."""
        # By its delivery, so that one which is there twice ends once.
        ending = {row[:2]: row for row in rows}
        ended: list[Row] = []
        for text, values in _in_chunks("finish_jobs", list(ending.values())):
            for each in values:
                ended += self._connection.execute(text, each)
        self.bulk("add_attempts", [delivery + ending[delivery][9:] for delivery in ended])
        return ended

    def announce(self) -> None:
        """Wake those who wait for jobs, after the commit."""
        self.announced = True

    def _content(self, question: LaneQuestion, now_ms: int, lane_credit: int) -> LaneContent:
        (group_key, ordered), pool, share = question
        execute = self._connection.execute
        on_its_way: list[str] = []
        found = None
        if ordered:
            found = execute(_FIRST_BLOCKER, {"group_key": group_key}).fetchone()
            lane = {"pool": pool, "group_key": group_key, "most": lane_credit}
            on_its_way = [job_id for (job_id,) in execute(_ON_ITS_WAY, lane)]
        jobs: list[LaneJob] = []
        for mode in _MODES[bool(ordered)]:
            values = {"group_key": group_key, "mode": int(mode), "now_ms": now_ms, "share": share}
            known = MODE_OF[mode]
            jobs += [LaneJob(job_id, known, *rest) for job_id, _, *rest in execute(_FIRST_JOBS, values)]
        return LaneContent(Position(*found) if found else None, jobs, on_its_way)


def _in_chunks(statement: str, rows: Sequence[Row]) -> Iterator[tuple[str, Sequence[Row]]]:
    """Divide rows among statements of many rows and of one; return each with the values of its runs.

    sqlite3 lets other threads run at every step of a statement, and has to wait for them afterwards: a statement of
    many rows is one step.
    """
    done = 0
    for size, text in _with_many_values(statement):
        while len(rows) - done >= size:
            yield text, [tuple(chain.from_iterable(rows[done : done + size]))]
            done += size
    if done < len(rows):
        yield _QUERIES[statement], rows[done:]


@cache
def _with_many_values(statement: str) -> list[tuple[int, str]]:
    """Return a statement with VALUES for many rows, and their number; empty if it has no VALUES."""
    text = _QUERIES[statement]
    row = _VALUES.search(text)
    if row is None:
        return []
    return [(size, text.replace(row[1], ", ".join([row[1]] * size))) for size in _CHUNKS]


def _plain(value: object) -> object:
    return msgspec.json.encode(value).decode() if isinstance(value, list) else value
