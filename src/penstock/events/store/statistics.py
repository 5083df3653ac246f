"""Statistics in the database: a batch is added as a whole and at most once, whoever counts and however often.

Attempts are counted in the order of their `Place`. The last one counted is kept beside the sums, in the same
transaction: a batch that does not begin right behind it adds nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from penstock.domain.limits import MINUTE_MS
from penstock.events.statistics import (
    OTHERS,
    AttemptRow,
    Counted,
    Dimension,
    JobOrigin,
    Leader,
    Leaders,
    Minute,
    StatisticsPlace,
    joined,
    merged,
    summed,
)
from penstock.events.store.transaction import Row, Transaction

KEPT_MS = 48 * 60 * MINUTE_MS
"""How long minutes are kept."""
NAMES_PER_MINUTE = 200
"""How many names a minute keeps of each dimension; the smallest of the rest are counted as OTHERS."""

_LATENCY = msgspec.json.Decoder(tuple[int, ...]).decode
_LEADERS = msgspec.json.Decoder(Leaders).decode
_encode = msgspec.json.encode

Result = TypeVar("Result")


class Database(Protocol):
    """What statistics need of a database."""

    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work as a whole or not at all."""
        ...

    async def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that changes nothing."""
        ...


class StatisticsProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far attempts were counted, and how many there were."""

    upto: StatisticsPlace
    counted: int
    set_aside: int
    repaired: int


class Statistics:
    """The minutes of a database of jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def minutes(self, since_ms: int, until_ms: int, by: Dimension) -> list[Minute]:
        """The rows of the minutes that begin in a span of time, the oldest first."""
        rows = await self._database.read(
            lambda tx: tx.all("minutes_between", since_ms=since_ms, until_ms=until_ms, by=by.value)
        )
        return [_minute(row) for row in rows]

    async def leaders(self, since_ms: int, until_ms: int, most: int) -> list[Leader]:
        """The groups with most attempts in a span of time, the first one first."""
        rows = await self._database.read(lambda tx: tx.all("leaders_between", since_ms=since_ms, until_ms=until_ms))
        together = Leaders()
        for _, text in rows:
            minute = _LEADERS(text)
            # None is dropped before the end: a group may lead a later minute.
            together = joined(together, minute, len(together.held) + len(minute.held))
        return list(together.held[:most])

    async def progress(self) -> StatisticsProgress:
        """How far attempts were counted."""
        position, job_id, number, at_ms, counted, set_aside, repaired = (
            await self._database.read(lambda tx: tx.all("statistics_progress"))
        )[0]
        upto = StatisticsPlace(position, job_id, number, at_ms)
        return StatisticsProgress(upto=upto, counted=counted, set_aside=set_aside, repaired=repaired)

    async def add(self, counted: Counted, after: StatisticsPlace, now_ms: int, kept_ms: int = KEPT_MS) -> bool:
        """Add a batch that was counted from `after` on; False, and nothing added, if others were counted since."""
        return await self._database.write(lambda tx: _add(tx, counted, after, now_ms - kept_ms))

    async def attempts_after(self, place: StatisticsPlace, most: int) -> list[AttemptRow]:
        """The next attempts to be counted, in order; none that an older transaction may still come before."""
        rows = await self._database.read(
            lambda tx: tx.all("attempts_to_count", most=most, **msgspec.structs.asdict(place))
        )
        return [AttemptRow(**dict(zip(AttemptRow.__struct_fields__, row, strict=True))) for row in rows]

    async def origins(self, job_ids: Sequence[str]) -> dict[str, JobOrigin]:
        """The jobs with these ids, archived or not, by id."""
        rows = await self._database.read(lambda tx: tx.all("job_origins", ids=list(job_ids)))
        return {row[0]: JobOrigin(**dict(zip(JobOrigin.__struct_fields__, row, strict=True))) for row in rows}


def _add(tx: Transaction, counted: Counted, after: StatisticsPlace, before_ms: int) -> bool:
    moved = tx.all(
        "advance_statistics",
        counted=counted.rows,
        set_aside=counted.set_aside,
        repaired=counted.repaired,
        **msgspec.structs.asdict(counted.upto),
        **{f"after_{name}": value for name, value in msgspec.structs.asdict(after).items()},
    )
    if not moved:
        return False
    kept = [minute for minute in counted.minutes if minute.minute_ms >= before_ms]
    _add_minutes(tx, kept)
    _add_leaders(tx, {minute_ms: held for minute_ms, held in counted.leaders.items() if minute_ms >= before_ms})
    tx.all("forget_minutes", before_ms=before_ms)
    tx.all("forget_leaders", before_ms=before_ms)
    return True


def _add_minutes(tx: Transaction, added: Sequence[Minute]) -> None:
    known: dict[tuple[int, Dimension], dict[str, Minute]] = defaultdict(dict)
    for row in tx.all("minutes_of", minutes=sorted({minute.minute_ms for minute in added})):
        minute = _minute(row)
        known[minute.minute_ms, minute.by][minute.name] = minute
    changed: dict[tuple[int, Dimension, str], Minute] = {}
    # The largest first: they are the ones that get a name of their own.
    for minute in sorted(summed(added), key=lambda minute: (-minute.attempts, minute.name)):
        names = known[minute.minute_ms, minute.by]
        if minute.name not in names and len(names) >= NAMES_PER_MINUTE:
            minute = msgspec.structs.replace(minute, name=OTHERS)
        whole = merged(names[minute.name], minute) if minute.name in names else minute
        names[whole.name] = changed[whole.minute_ms, whole.by, whole.name] = whole
    tx.bulk("put_minutes", [_row(minute) for minute in changed.values()])


def _add_leaders(tx: Transaction, added: dict[int, Leaders]) -> None:
    known = {minute_ms: _LEADERS(text) for minute_ms, text in tx.all("leaders_of", minutes=sorted(added))}
    whole = {minute_ms: joined(known.get(minute_ms, Leaders()), leaders) for minute_ms, leaders in added.items()}
    tx.bulk("put_leaders", [(minute_ms, _encode(leaders).decode()) for minute_ms, leaders in whole.items()])


def _minute(row: Row) -> Minute:
    values = dict(zip(Minute.__struct_fields__, row, strict=True))
    values["by"], values["latency"] = Dimension(values["by"]), _LATENCY(values["latency"])
    return Minute(**values)


def _row(minute: Minute) -> Row:
    values = {**msgspec.structs.asdict(minute), "by": minute.by.value, "latency": _encode(minute.latency).decode()}
    return tuple(values.values())
