"""The repository on PostgreSQL: a few connections, each used by one thread at a time.

Lanes are locked, and many rows are sent as one array per column.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from queue import Empty, LifoQueue
from typing import Any, LiteralString, TypeVar

import psycopg

from penstock.domain.order import LaneKey, Position
from penstock.domain.pace.credit import AwakeStream
from penstock.engine import StoreFailed
from penstock.engine.store.postgres_address import PostgresAddress, Session
from penstock.events.errors import DatabaseFailed, ValuesRefused
from penstock.events.store.database import JobSignal, LaneContent, LaneJob, LaneQuestion, Row, Statement, Work
from penstock.events.store.postgres.listener import PostgresListener
from penstock.events.store.postgres.schema import drop_months, make_months, migrate
from penstock.events.store.repository import JobRepository
from penstock.events.store.statements import MODE_OF, Dialect, queries, translated

_QUERIES = queries(Dialect.POSTGRES)
_LOAD_JOBS = _QUERIES["load_jobs"]
_JOB_TYPES = (*["text"] * 7, "int8", "int2", "int2", "text", "text", "bytea", *["text"] * 3, *["int8"] * 9)
_GATE = int.from_bytes(blake2b(b"penstock jobs: claims", digest_size=8).digest(), "big", signed=True)


class PostgresTransaction:
    """Statements on a connection."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.announced = False

    def all(self, statement: str, /, **values: object) -> list[Row]:
        """Return all rows of a statement."""
        return self._run(_QUERIES[statement], values)

    def first(self, statement: str, /, **values: object) -> Row | None:
        """Return the first row of a statement."""
        rows = self.all(statement, **values)
        return rows[0] if rows else None

    def bulk(self, statement: str, rows: Sequence[Row]) -> int:
        """Run one statement for many rows; return how many it wrote."""
        return self._session.execute(_QUERIES[statement], _columns(rows), binary=True).rowcount if rows else 0

    def load_jobs(self, rows: Sequence[Row]) -> None:
        """Add many jobs, as `insert_jobs` does, in the way that costs the server and this process least."""
        if not rows:
            return
        try:
            with self._session.transaction(), self._session.cursor() as cursor, cursor.copy(_LOAD_JOBS) as copy:
                copy.set_types(_JOB_TYPES)
                for row in rows:
                    copy.write_row((*row, 0, 0, 0))
        except psycopg.errors.UniqueViolation:
            # Some are there, which a COPY cannot leave out.
            self.bulk("insert_jobs", rows)

    def select(self, text: str, values: dict[str, object]) -> list[Row]:
        """Return the rows of a SELECT that was put together."""
        return self._run(translated(text, Dialect.POSTGRES), values)

    def lock_lanes(self, group_keys: Collection[str]) -> None:
        """Lock the lanes of these groups until the end of the transaction."""
        self.all("lock_lanes", group_keys=list(group_keys))

    def gate(self, *, exclusive: bool) -> None:
        """Keep claims, which share the gate, apart from what must not run beside one."""
        self.all("gate_exclusive" if exclusive else "gate_shared", key=_GATE)

    def overwrite_replaced(self) -> None:
        """Nothing to do: VACUUM removes old rows, and the write-ahead log ends with its retention."""

    def take_key_numbers(
        self, counts: Mapping[tuple[str, str], int], tenants: Mapping[tuple[str, str], str], day: int
    ) -> list[Row]:
        """Take numbers for keys of subscriptions; return subscription, key and the last number of each."""
        columns = {
            "subscriptions": [subscription_id for subscription_id, _ in counts],
            "groups": [key for _, key in counts],
            "tenants": [tenants[key] for key in counts],
            "counts": list(counts.values()),
        }
        return self.all("take_key_numbers", day=day, **columns)

    def take_turns(self, count: int) -> list[int]:
        """Return `count` numbers, each larger than all before."""
        return [turn for (turn,) in self.all("take_turns", count=count)]

    def first_jobs(self, lanes: Sequence[LaneQuestion], now_ms: int, lane_credit: int) -> list[LaneContent]:
        """Return the first jobs of each lane, its share of each mode, its first blocker, and what is on its way."""
        if not lanes:
            return []
        columns = {
            "group_keys": [each.lane.group_key for each in lanes],
            "ordereds": [each.lane.ordered for each in lanes],
            "pools": [each.pool for each in lanes],
            "shares": [each.share for each in lanes],
        }
        rows = self.all("first_jobs", now_ms=now_ms, lane_credit=lane_credit, **columns)
        return [_content(list(of_lane)) for _, of_lane in groupby(rows, itemgetter(0))]

    def awake_streams(self) -> list[tuple[AwakeStream, int]]:
        """Return the streams with lanes that are awake, each with its first turn."""
        return [(AwakeStream(pool, subscription), turn) for pool, subscription, turn in self.all("awake_streams")]

    def awake_lanes(self, streams: Mapping[AwakeStream, int]) -> list[Row]:
        """Return the first lanes of streams."""
        return self._of_streams("awake_lanes_of_streams", streams)

    def jobs_on_their_way(self, pools: Mapping[str, int]) -> list[tuple[str, str, int]]:
        """Return how many QUEUED and PROCESSING jobs each subscription has in pools."""
        rows = self.all("jobs_on_their_way", pools=list(pools), most=list(pools.values()))
        return [(pool, subscription, count) for pool, subscription, count in rows]

    def awake_ranges(self, streams: Mapping[AwakeStream, int]) -> list[tuple[str, str, int, int, int]]:
        """Return the turns of the first lanes of streams."""
        rows = self._of_streams("awake_ranges_of_streams", streams)
        return [(pool, subscription, first, last, lanes) for pool, subscription, first, last, lanes in rows]

    def take_lanes(self, lanes: Mapping[LaneKey, int], owner: str, until_ms: int) -> list[Row]:
        """Claim lanes that still have the turn given with each."""
        columns = {
            "group_keys": [lane.group_key for lane in lanes],
            "ordereds": [lane.ordered for lane in lanes],
            "turns": list(lanes.values()),
        }
        return self.all("claim_lanes", owner=owner, until_ms=until_ms, **columns)

    def together(self, *statements: Statement) -> list[list[Row]]:
        """Return the rows of several statements, sent at once."""
        with self._session.pipeline():
            cursors = [
                self._session.execute(_QUERIES[name], dict(values) or None, binary=True) for name, values in statements
            ]
        return [cursor.fetchall() for cursor in cursors]

    def finish_jobs(self, rows: Sequence[Row]) -> list[Row]:
        """End deliveries and keep their attempts, in one statement."""
        return self._run(_QUERIES["finish_jobs"], _columns(rows)) if rows else []

    def announce(self) -> None:
        """Wake those who wait for jobs, in any process, after the commit."""
        if not self.announced:
            self.announced = True
            self.all("notify")

    def _of_streams(self, statement: str, streams: Mapping[AwakeStream, int]) -> list[Row]:
        pools, subscriptions = [each.pool for each in streams], [each.subscription for each in streams]
        return self.all(statement, pools=pools, subscriptions=subscriptions, most=list(streams.values()))

    def _run(self, text: str, values: Any) -> list[Row]:
        cursor = self._session.execute(text, values or None, binary=True)
        return cursor.fetchall() if cursor.description is not None else []


def _columns(rows: Sequence[Row]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _content(rows: list[Row]) -> LaneContent:
    """Return a lane from its rows: its number, what is on its way, its blocker, and one job each.

    A lane without a job has one row without one.
    """
    _, on_its_way, *blocker = rows[0][:5]
    jobs = [LaneJob(row[5], MODE_OF[row[6]], *row[7:]) for row in rows if row[5] is not None]
    return LaneContent(Position(*blocker) if blocker[-1] is not None else None, jobs, on_its_way)


Result = TypeVar("Result")

_CONNECTIONS = 8
_BEGIN = "BEGIN"
_BEGIN_UNFLUSHED = "BEGIN; SET LOCAL synchronous_commit = off"
# A second and third time for a lost connection that had done nothing yet, and for a deadlock.
_ATTEMPTS = 3
_TRY_AGAIN = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
# Besides the server's own errors: an integer past 64 bits, text that is not Unicode.
_BAD_VALUES = (psycopg.DataError, psycopg.IntegrityError, OverflowError, UnicodeError)
_REFUSALS = (psycopg.Error, *_BAD_VALUES)


class PostgresDatabase:
    """Jobs in a schema that any number of processes share; each of them calls the listeners."""

    def __init__(self, url: str, *, schema: str = "penstock_jobs", listen: bool = False) -> None:
        self._address = PostgresAddress(url)
        self._schema = schema
        self._idle: LifoQueue[Session] = LifoQueue()
        self._threads = ThreadPoolExecutor(_CONNECTIONS, "jobs-postgres")
        self._listener = PostgresListener(url) if listen else None
        self._signal: JobSignal | None = None

    @property
    def signal(self) -> JobSignal:
        """Called when jobs may be claimed."""
        if self._signal is None:
            raise DatabaseFailed(f"{self._address} is not open for jobs")
        return self._signal

    async def open(self, now_ms: int) -> None:
        """Create or migrate the tables, and start listening if asked to."""
        await self._in_thread(self._migrate, now_ms)
        self._signal = JobSignal()
        if self._listener is not None:
            try:
                await self._listener.start(self._signal)
            except psycopg.Error as error:
                raise DatabaseFailed(f"cannot listen at {self._address}: {self._address.explain(error)}") from None

    async def write(self, work: Work[Result]) -> Result:
        """Do work in a transaction."""
        return await self._done(work, _BEGIN)

    async def write_unflushed(self, work: Work[Result]) -> Result:
        """Do work in a transaction that is flushed with the next one, or soon after."""
        return await self._done(work, _BEGIN_UNFLUSHED)

    async def write_one(self, work: Work[Result]) -> Result:
        """Do work of one statement, which needs no transaction around it."""
        return await self._done(work, None)

    read = read_few = write_one

    async def keep_months(self, now_ms: int) -> None:
        """Have the partitions of this month and the next."""
        await self._in_thread(self._with_session, lambda session: make_months(session, now_ms))

    async def drop_before(self, before_ms: int) -> None:
        """Drop the partitions of months that ended before."""
        await self._in_thread(self._with_session, lambda session: drop_months(session, before_ms))

    def trouble(self) -> str | None:
        """Return None: its disk is the server's."""
        return None

    def require_room(self) -> None:
        """Nothing to do: its disk is the server's."""

    async def close(self) -> None:
        """Stop listening and disconnect."""
        if self._listener is not None:
            await self._listener.stop()
        self._signal = None
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self._hang_up()

    async def _done(self, work: Work[Result], begin: LiteralString | None) -> Result:
        signal = self.signal
        done: tuple[Result, bool] = await self._in_thread(self._attempt_all, work, begin)
        result, announced = done
        if announced:
            signal.call()
        return result

    async def _in_thread(self, function: Callable[..., Result], *arguments: object) -> Result:
        try:
            result: Result = await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
            return result
        except _REFUSALS as error:
            kind = ValuesRefused if isinstance(error, _BAD_VALUES) else DatabaseFailed
            raise kind(f"{self._address} refused a change of jobs: {self._address.explain(error)}") from error
        except StoreFailed as error:
            raise DatabaseFailed(error.message) from None

    def _attempt_all(self, work: Work[Result], begin: LiteralString | None) -> tuple[Result, bool]:
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._with_session(lambda session: _transact(session, work, begin))
            except (*_TRY_AGAIN, _NothingSent):
                continue
        return self._with_session(lambda session: _transact(session, work, begin))

    def _with_session(self, use: Callable[[Session], Result]) -> Result:
        try:
            session = self._idle.get_nowait()
        except Empty:
            session = self._address.connect(self._schema)
        try:
            return use(session)
        finally:
            if session.closed:
                # Whatever ended this connection has most likely ended the idle ones.
                self._hang_up()
            else:
                self._idle.put(session)

    def _hang_up(self) -> None:
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()

    def _migrate(self, now_ms: int) -> None:
        def use(session: Session) -> None:
            migrate(session, self._schema)
            make_months(session, now_ms)

        self._with_session(use)


class _NothingSent(psycopg.OperationalError):
    """The connection turned out to be lost before anything was sent."""


def _transact(session: Session, work: Work[Result], begin: LiteralString | None) -> tuple[Result, bool]:
    transaction = PostgresTransaction(session)
    if begin is None:
        return work(transaction), transaction.announced
    try:
        session.execute(begin)
    except psycopg.OperationalError as error:
        raise _NothingSent(str(error)) from error
    try:
        result = work(transaction)
        session.execute("COMMIT")
    except BaseException:
        _roll_back(session)
        raise
    return result, transaction.announced


def _roll_back(session: Session) -> None:
    try:
        session.rollback()
    except psycopg.Error:
        session.close()


def postgres_repository(url: str, *, schema: str = "penstock_jobs", listen: bool = False) -> JobRepository:
    """Return the repository in a schema that several nodes share; open it before use.

    A scheduler listens for jobs that others create.
    """
    return JobRepository(PostgresDatabase(url, schema=schema, listen=listen))
