"""Writes a batch to the lake where its rows are: each task writes Parquet files and sends only their names and sums."""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import msgspec
import pyarrow
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.taskcontext import TaskContext

from penstock.edge.randomness import random_bytes
from penstock.events.statistics import BEFORE_ALL, StatisticsPlace
from penstock.history.lake.delta import LakeFiles, NewFile, TableState
from penstock.history.lake.facts import FLAW
from penstock.history.lake.rows import ENDED, JOB, PLACE
from penstock.history.lake.schema import JOBS, POSITION
from penstock.history.lake.tally import MOST_FLAWS_SHOWN
from penstock.spark.workers import freeze_long_lived_objects

ROWS_PER_FILE = 500_000
_SORTED = [("group_key", "ascending"), (POSITION, "ascending")]


class LakeWrite(msgspec.Struct, frozen=True, kw_only=True):
    """What tasks wrote: files by table, the last attempt, and flawed attempts."""

    files: dict[str, tuple[NewFile, ...]] = {}
    upto: StatisticsPlace = BEFORE_ALL
    flawed: int = 0
    flaws: tuple[tuple[str, str], ...] = ()

    def rows(self, table: str) -> int:
        """Return how many rows a table gets."""
        return sum(file.rows for file in self.files.get(table, ()))


class LakeTarget(msgspec.Struct, frozen=True):
    """A table to write to, the last attempt that it has, and its state."""

    files: LakeFiles
    after: StatisticsPlace
    before: TableState


_decode = msgspec.msgpack.Decoder(LakeWrite).decode


def write_attempts(rows: DataFrame, targets: Sequence[LakeTarget]) -> LakeWrite:
    """Write what each table lacks of a batch of `lake_rows`."""
    for target in targets:
        target.files.current()
    token = random_bytes(8).hex()

    def write_share(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        done = LakeWrite()
        for number, table in enumerate(_portions(batches)):
            done = _together(done, _written(table, targets, f"part-{token}-{_task()}-{number}"))
        yield _share(done)
        freeze_long_lived_objects("writing")

    return _run(rows, write_share)


def write_rows(rows: DataFrame, files: LakeFiles) -> tuple[NewFile, ...]:
    """Write rows that have the columns of a table."""
    files.current()
    token = random_bytes(8).hex()

    def write_share(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        written: list[NewFile] = []
        for number, table in enumerate(_portions(batches)):
            written += files.write(table.cast(files.table.arrow), f"part-{token}-{_task()}-{number}")
        yield _share(LakeWrite(files={files.table.name: tuple(written)}))
        freeze_long_lived_objects("writing")

    return _run(rows, write_share).files.get(files.table.name, ())


def is_after(table: pyarrow.Table, place: StatisticsPlace) -> pyarrow.ChunkedArray:
    """Return which rows come after a place."""
    found = pyarrow.scalar(False)
    for name, value in reversed(list(zip(PLACE, msgspec.structs.astuple(place), strict=True))):
        column, bound = table.column(name), pyarrow.scalar(value, table.schema.field(name).type)
        found = pc.or_(pc.greater(column, bound), pc.and_(pc.equal(column, bound), found))
    return found


def _written(table: pyarrow.Table, targets: Sequence[LakeTarget], name: str) -> LakeWrite:
    files = {}
    for target in targets:
        files[target.files.table.name] = tuple(target.files.write(_lacking(table, target), name))
    new = table.filter(is_after(table, min(target.after for target in targets)))
    flawed = new.filter(pc.is_valid(new.column(FLAW)))
    shown = flawed.slice(0, MOST_FLAWS_SHOWN).select([*PLACE, FLAW]).to_pylist()
    return LakeWrite(
        files=files,
        upto=_last(new),
        flawed=flawed.num_rows,
        flaws=tuple((f"{row[PLACE[1]] or None}:{row[PLACE[2]]}:{row[PLACE[3]]}", row[FLAW]) for row in shown),
    )


def _lacking(table: pyarrow.Table, target: LakeTarget) -> pyarrow.Table:
    wanted = pc.and_(is_after(table, target.after), pc.is_null(table.column(FLAW)))
    columns = {name: name for name in target.files.table.names}
    if target.files.table == JOBS:
        wanted = pc.and_(wanted, table.column(ENDED))
        columns = {name: f"{JOB}{name}" if f"{JOB}{name}" in table.schema.names else name for name in columns}
    rows = table.filter(wanted).select(list(columns.values())).rename_columns(list(columns))
    return rows.sort_by(_SORTED).cast(target.files.table.arrow)


def _last(rows: pyarrow.Table) -> StatisticsPlace:
    if not rows.num_rows:
        return BEFORE_ALL
    last = rows.select(list(PLACE)).sort_by([(name, "descending") for name in PLACE]).slice(0, 1).to_pylist()[0]
    return StatisticsPlace(*last.values())


def _portions(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.Table]:
    held: list[pyarrow.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= ROWS_PER_FILE:
            yield pyarrow.Table.from_batches(held)
            held = []
    if any(each.num_rows for each in held):
        yield pyarrow.Table.from_batches(held)


def _task() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.taskAttemptId()


def _share(done: LakeWrite) -> pyarrow.RecordBatch:
    return pyarrow.RecordBatch.from_arrays([pyarrow.array([msgspec.msgpack.encode(done)], pyarrow.binary())], ["share"])


def _run(rows: DataFrame, write: "object") -> LakeWrite:
    shares = rows.mapInArrow(write, "share binary").collect()  # type: ignore[arg-type]
    return reduce(_together, (_decode(share["share"]) for share in shares), LakeWrite())


def _together(one: LakeWrite, other: LakeWrite) -> LakeWrite:
    tables = one.files.keys() | other.files.keys()
    return LakeWrite(
        files={name: (*one.files.get(name, ()), *other.files.get(name, ())) for name in tables},
        upto=max(one.upto, other.upto),
        flawed=one.flawed + other.flawed,
        flaws=(one.flaws + other.flaws)[:MOST_FLAWS_SHOWN],
    )
