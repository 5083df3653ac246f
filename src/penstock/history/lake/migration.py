"""Turns a lake of an older version, Parquet files with a log of Penstock's own, into Delta tables."""

from collections.abc import Iterable, Iterator
from datetime import date

import msgspec
import pyarrow
import pyarrow.fs
import pyarrow.parquet
from deltalake.fs import DeltaStorageHandler
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.domain.errors import FailedPrecondition
from penstock.events.statistics import BEFORE_ALL, StatisticsPlace
from penstock.history.lake.delta import LakeFiles, NewFile, TableState
from penstock.history.lake.facts import DAY, DETAILS, FACTS, FLAW
from penstock.history.lake.lake import OLD_LOG, Lake, entries
from penstock.history.lake.rows import lake_rows
from penstock.history.lake.schema import DELIVERIES
from penstock.history.lake.writer import write_rows

_APPLICATION = "migration"


class OldCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A batch in the old lake: its rows by day, its last attempt, and the batches whose rows of its day it has."""

    batch: str
    upto: StatisticsPlace
    days: dict[str, int] = {}
    replaces: tuple[str, ...] = ()


class MigratedDay(msgspec.Struct, frozen=True):
    """A day that is in the new table, and how many rows it has."""

    day: str
    rows: int


_decode = msgspec.json.Decoder(OldCommit).decode


def migrate(spark: SparkSession, path: str) -> Iterator[MigratedDay]:
    """Copy the deliveries of an old lake, a day in a commit; it may be stopped at any time and run again.

    The old files stay as they are.
    """
    lake = Lake(spark, path)
    files = lake.tables[DELIVERIES.name]
    if files.state().upto is not None:
        raise FailedPrecondition(f"the lake {lake.path} is in the format of this version already")
    root = _root(lake.path)
    commits = [
        _decode(root.open_input_file(entry.path).readall())
        for entry in entries(root, OLD_LOG)
        if entry.path.endswith(".json") and not entry.base_name.startswith(".")
    ]
    done = files.current().transaction_version(_APPLICATION)
    for day, batches in sorted(_live(commits).items()):
        number = date.fromisoformat(day).toordinal()
        if done is None or number > done:
            written = _copied_day(spark, lake.path, files, day, batches)
            files.commit(written, number, TableState(done), application=_APPLICATION)
            done = number
        yield MigratedDay(day, sum(batches.values()))
    files.commit([], max((commit.upto for commit in commits), default=BEFORE_ALL).position, TableState())


def _copied_day(
    spark: SparkSession, path: str, files: LakeFiles, day: str, batches: dict[str, int]
) -> tuple[NewFile, ...]:
    root = _root(path)
    paths = [
        entry.path
        for batch in batches
        for entry in entries(root, f"{DAY}={day}/batch={batch}")
        if entry.path.endswith(".parquet")
    ]
    schema = to_arrow_schema(FACTS)

    def read(shares: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        store = _root(path)
        for share in shares:
            for name in share.column("path").to_pylist():
                with pyarrow.parquet.ParquetFile(store.open_input_file(name)) as file:
                    for batch in file.iter_batches():
                        days = pyarrow.array([day] * batch.num_rows, pyarrow.string())
                        yield pyarrow.RecordBatch.from_arrays(
                            [
                                *(batch.column(field.name).cast(field.type) for field in schema if field.name != DAY),
                                days,
                            ],
                            schema=schema,
                        )

    named = spark.createDataFrame([(name,) for name in paths], "path string").repartition(max(1, len(paths) // 16))
    facts = named.mapInArrow(read, FACTS).withColumn(FLAW, f.lit(None).cast("string"))
    for field in DETAILS:
        facts = facts.withColumn(field.name, f.lit(None).cast(field.dataType))
    written = write_rows(lake_rows(facts).select(*DELIVERIES.names), files)
    rows, found = sum(batches.values()), sum(file.rows for file in written)
    if found != rows:
        raise FailedPrecondition(
            f"{found} of the {rows} facts of {day} were found, so the day was not migrated: "
            "the old lake's files do not hold what its log says; restore them, or delete the day and its log"
        )
    return written


def _live(commits: Iterable[OldCommit]) -> dict[str, dict[str, int]]:
    """Return the batches that were to be read, by day, with their rows."""
    gone = {(day, old) for commit in commits for day in commit.days for old in commit.replaces}
    days: dict[str, dict[str, int]] = {}
    for commit in commits:
        for day, rows in commit.days.items():
            if (day, commit.batch) not in gone:
                days.setdefault(day, {})[commit.batch] = rows
    return days


def _root(path: str) -> pyarrow.fs.FileSystem:
    return pyarrow.fs.PyFileSystem(DeltaStorageHandler(path))
