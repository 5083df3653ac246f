"""Statistics in the database: a batch is added as a whole and at most once, whoever counts and however often.

Attempts are counted in the order of their `Place`. The last one counted is kept beside the sums, in the same
transaction: a batch that does not begin right behind it adds nothing.
"""

from collections import defaultdict
from collections.abc import Sequence

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
    refined,
    summed,
)
from penstock.events.store.database import RepositoryPart, Row, Transaction, reads, writes

KEPT_MS = 48 * 60 * MINUTE_MS
"""How long minutes are kept."""
NAMES_PER_MINUTE = 200
"""How many names a minute keeps of each dimension; the smallest of the rest are counted as OTHERS."""

_LATENCY = msgspec.json.Decoder(tuple[int, ...]).decode
_LEADERS = msgspec.json.Decoder(Leaders).decode
_encode = msgspec.json.encode


class StatisticsProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far attempts were counted, and how many there were."""

    upto: StatisticsPlace
    counted: int
    set_aside: int
    repaired: int


class Statistics(RepositoryPart):
    """The minutes of a database of jobs."""

    @reads
    def minutes(self, tx: Transaction, since_ms: int, until_ms: int, by: Dimension) -> list[Minute]:
        """Return the rows of the minutes that begin in a span of time, the oldest first."""
        rows = tx.all("minutes_between", since_ms=since_ms, until_ms=until_ms, by=by.value)
        return [_minute(row) for row in rows]

    @reads
    def leaders(self, tx: Transaction, since_ms: int, until_ms: int, most: int) -> list[Leader]:
        """Return the groups with most attempts in a span of time, the first one first."""
        together = Leaders()
        for _, text in tx.all("leaders_between", since_ms=since_ms, until_ms=until_ms):
            minute = _LEADERS(text)
            # None is dropped before the end: a group may lead a later minute.
            together = joined(together, minute, len(together.held) + len(minute.held))
        return list(together.held[:most])

    @reads
    def progress(self, tx: Transaction) -> StatisticsProgress:
        """Return how far attempts were counted."""
        position, job_id, number, at_ms, counted, set_aside, repaired = tx.all("statistics_progress")[0]
        upto = StatisticsPlace(position, job_id, number, at_ms)
        return StatisticsProgress(upto=upto, counted=counted, set_aside=set_aside, repaired=repaired)

    @writes
    def add(
        self, tx: Transaction, counted: Counted, after: StatisticsPlace, now_ms: int, kept_ms: int = KEPT_MS
    ) -> bool:
        """Add a batch that was counted from `after` on; False, and nothing added, if others were counted since."""
        if not _advanced(tx, counted, after):
            return False
        before_ms = now_ms - kept_ms
        _add_minutes(tx, [minute for minute in counted.minutes if minute.minute_ms >= before_ms])
        _add_leaders(tx, {minute_ms: held for minute_ms, held in counted.leaders.items() if minute_ms >= before_ms})
        tx.all("forget_minutes", before_ms=before_ms)
        tx.all("forget_leaders", before_ms=before_ms)
        return True

    @reads
    def attempts_after(self, tx: Transaction, place: StatisticsPlace, most: int) -> list[AttemptRow]:
        """Return the next attempts to count, in order; none that an older transaction may still come before."""
        rows = tx.all("attempts_to_count", most=most, **msgspec.structs.asdict(place))
        return [AttemptRow(*row) for row in rows]

    @reads
    def origins(self, tx: Transaction, job_ids: Sequence[str]) -> dict[str, JobOrigin]:
        """Return the jobs with these ids, archived or not, by id."""
        rows = tx.all("job_origins", ids=list(job_ids))
        return {row[0]: JobOrigin(*row) for row in rows}


def _advanced(tx: Transaction, counted: Counted, after: StatisticsPlace) -> bool:
    moved = tx.all(
        "advance_statistics",
        counted=counted.rows,
        set_aside=counted.set_aside,
        repaired=counted.repaired,
        **msgspec.structs.asdict(counted.upto),
        **{f"after_{name}": value for name, value in msgspec.structs.asdict(after).items()},
    )
    return bool(moved)


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
    values["by"], values["latency"] = Dimension(values["by"]), refined(_LATENCY(values["latency"]))
    return Minute(**values)


def _row(minute: Minute) -> Row:
    values = {**msgspec.structs.asdict(minute), "by": minute.by.value, "latency": _encode(minute.latency).decode()}
    return tuple(values.values())
