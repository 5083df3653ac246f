"""The port to a database, and how an operation of the repository is written on it: once, as work in a transaction.

    class PoolRecords(RepositoryPart):
        @writes
        def put_pool(self, tx: Transaction, pool: Pool) -> None: ...

    await repository.put_pool(pool)

The decorator says what kind of transaction the work needs and supplies `tx`; callers await the rest of the signature.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from penstock.domain.order import LaneKey, Position, first_of_lane
from penstock.domain.pace.credit import AwakeStream
from penstock.domain.pointer import DispatchMode

Row = tuple[Any, ...]
Statement = tuple[str, Mapping[str, object]]
"""The name of a statement, and its values."""


class LaneJob(NamedTuple):
    """A job that waits in a lane: the columns of `{lane job}` in sql/order.sql."""

    id: str
    mode: DispatchMode
    sequence: int
    created_at_ms: int
    due_at_ms: int
    pool: str
    publish_round: int
    delivery_count: int
    updated_at_ms: int

    @property
    def position(self) -> Position:
        """Its place in its group."""
        return Position(self.sequence, self.created_at_ms, self.id)


class LaneQuestion(NamedTuple):
    """A lane to read: the pool its jobs went to last, and how many jobs are wanted."""

    lane: LaneKey
    pool: str
    share: int


class LaneContent(NamedTuple):
    """The first jobs of a lane, of each mode, and the first job of its group that BLOCK_ON_ERROR jobs must not pass.

    Of an ordered lane also the ids of its jobs that are on their way in its pool, up to its credit.
    """

    blocker: Position | None
    jobs: list[LaneJob]
    on_their_way: Sequence[str] = ()

    def first(self, most: int) -> list[LaneJob]:
        """Return the first jobs that may go, in order."""
        return first_of_lane(self.jobs, self.blocker, most)


class Transaction(Protocol):
    """Work that is kept as a whole or not at all: statements by name, and what the two databases do differently.

    Whoever moves jobs locks their lanes first, in the order of their keys, so that no two wait for each other.
    """

    def all(self, statement: str, /, **values: object) -> list[Row]:
        """Return all rows of a statement; a list is one value."""
        ...

    def first(self, statement: str, /, **values: object) -> Row | None:
        """Return the first row of a statement."""
        ...

    def bulk(self, statement: str, rows: Sequence[Row]) -> int:
        """Run one statement for many rows; return how many it wrote."""
        ...

    def load_jobs(self, rows: Sequence[Row]) -> None:
        """Add many jobs with the columns of `insert_jobs`, those that are there left out, at the least cost."""
        ...

    def select(self, text: str, values: dict[str, object]) -> list[Row]:
        """Return the rows of a SELECT that was put together, with the macros of sql/shared.sql."""
        ...

    def lock_lanes(self, group_keys: Collection[str]) -> None:
        """Lock the lanes of these groups until the end of the transaction."""
        ...

    def gate(self, *, exclusive: bool) -> None:
        """Keep claims apart from what must not run beside one: claims share the gate, the others close it."""
        ...

    def overwrite_replaced(self) -> None:
        """Leave nothing in the file of what this transaction replaces, as far as the database can."""
        ...

    def take_key_numbers(
        self, counts: Mapping[tuple[str, str], int], tenants: Mapping[tuple[str, str], str], day: int
    ) -> list[Row]:
        """Take numbers for keys of subscriptions; return subscription, key and the last number of each."""
        ...

    def take_turns(self, count: int) -> list[int]:
        """Return `count` numbers, each larger than all that were taken before."""
        ...

    def first_jobs(self, lanes: Sequence[LaneQuestion], now_ms: int, lane_credit: int) -> list[LaneContent]:
        """Return the first jobs of each lane, its share of each mode, its first blocker, and what is on its way."""
        ...

    def awake_streams(self) -> list[tuple[AwakeStream, int]]:
        """Return the streams with lanes that are awake, each with its first turn."""
        ...

    def awake_lanes(self, streams: Mapping[AwakeStream, int]) -> list[Row]:
        """Return the first lanes of streams, up to a number of each.

        Group key, whether it is ordered, turn, whether it is paused, pool and subscription.
        """
        ...

    def jobs_on_their_way(self, pools: Mapping[str, int]) -> list[tuple[str, str, int]]:
        """Return how many QUEUED and PROCESSING jobs each subscription has in pools, counted up to a number of each."""
        ...

    def awake_ranges(self, streams: Mapping[AwakeStream, int]) -> list[tuple[str, str, int, int, int]]:
        """Return pool, subscription, first and last turn, and number of the first lanes of streams."""
        ...

    def take_lanes(self, lanes: Mapping[LaneKey, int], owner: str, until_ms: int) -> list[Row]:
        """Claim lanes that are free or this owner's, and that still have the turn given with each.

        Return group key, whether it is ordered, and subscription of those that the owner has now.
        """
        ...

    def together(self, *statements: Statement) -> list[list[Row]]:
        """Return the rows of several statements that do not need each other's answers."""
        ...

    def finish_jobs(self, rows: Sequence[Row]) -> list[Row]:
        """End deliveries and keep their attempts, except of jobs that have moved on since.

        Return id and number of those that ended.
        """
        ...

    def announce(self) -> None:
        """Wake those who wait for jobs, once this is committed."""
        ...


class JobSignal:
    """The call that there may be jobs to claim: set from any thread, waited for on the loop.

    Several calls before a wait are one.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._called = asyncio.Event()

    def call(self) -> None:
        """Say that there may be jobs."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._called.set)

    async def wait(self) -> None:
        """Return when there was a call since the last wait."""
        await self._called.wait()
        self._called.clear()


Result = TypeVar("Result")
Work = Callable[[Transaction], Result]


class Database(Protocol):
    """A database that does work in transactions; DatabaseFailed when it refuses or does not answer."""

    @property
    def signal(self) -> JobSignal:
        """Called when there may be jobs to claim; PostgreSQL calls for other processes too."""
        ...

    async def open(self, now_ms: int) -> None:
        """Connect and bring the tables up to date; safe when several nodes start at once."""

    async def close(self) -> None:
        """Finish the work that was given, and disconnect."""

    async def write(self, work: Work[Result]) -> Result:
        """Do work as a whole or not at all."""
        ...

    async def write_unflushed(self, work: Work[Result]) -> Result:
        """Do work as `write` does, but answer before it is on the disk: only a crash of the machine can undo it.

        It is never kept without what was written before it.
        """
        ...

    async def write_one(self, work: Work[Result]) -> Result:
        """Do work that is one statement."""
        ...

    async def read(self, work: Work[Result]) -> Result:
        """Do work that changes nothing."""
        ...

    async def read_few(self, work: Work[Result]) -> Result:
        """Do work that reads some rows by their keys: an embedded database does it without another thread."""
        ...

    def trouble(self) -> str | None:
        """Return what is known to keep it from taking changes, in a sentence; None if nothing is. May ask the disk."""
        ...

    def require_room(self) -> None:
        """Raise DatabaseFailed while there is too little room for anything new."""

    async def keep_months(self, now_ms: int) -> None:
        """Have room for what this month and the next bring to the archive."""

    async def drop_before(self, before_ms: int) -> None:
        """Drop from the archive what is from before the start of a month."""


class RepositoryPart:
    """Operations on one subject of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database


Part = TypeVar("Part", bound=RepositoryPart)
P = ParamSpec("P")
Operation = Callable[Concatenate[Part, Transaction, P], Result]
Method = Callable[Concatenate[Part, P], Coroutine[Any, Any, Result]]


def reads(operation: Operation[Part, P, Result]) -> Method[Part, P, Result]:
    """Make an async method of work that changes nothing."""

    @wraps(operation)
    async def method(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._database.read(lambda tx: operation(self, tx, *args, **kwargs))

    return method


def reads_few(operation: Operation[Part, P, Result]) -> Method[Part, P, Result]:
    """Make an async method of work that reads some rows by their keys."""

    @wraps(operation)
    async def method(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._database.read_few(lambda tx: operation(self, tx, *args, **kwargs))

    return method


def writes(operation: Operation[Part, P, Result]) -> Method[Part, P, Result]:
    """Make an async method of work that is kept as a whole or not at all."""

    @wraps(operation)
    async def method(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._database.write(lambda tx: operation(self, tx, *args, **kwargs))

    return method


def writes_unflushed(operation: Operation[Part, P, Result]) -> Method[Part, P, Result]:
    """Make such a method of work that is done again if a crash of the machine undoes it."""

    @wraps(operation)
    async def method(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._database.write_unflushed(lambda tx: operation(self, tx, *args, **kwargs))

    return method


def adds(operation: Operation[Part, P, Result]) -> Method[Part, P, Result]:
    """Make such a method of work that brings something new, which is refused while there is little room."""
    write = writes(operation)

    @wraps(operation)
    async def method(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        self._database.require_room()
        return await write(self, *args, **kwargs)

    return method


def writes_one(operation: Operation[Part, P, Result]) -> Method[Part, P, Result]:
    """Make an async method of work that is one statement, which needs no transaction around it."""

    @wraps(operation)
    async def method(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._database.write_one(lambda tx: operation(self, tx, *args, **kwargs))

    return method
