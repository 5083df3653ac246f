"""The lake: Delta tables of what happened, in one directory or bucket. One process adds, any number read."""

from collections.abc import Sequence
from threading import Lock
from typing import Any

import pyarrow
import pyarrow.fs
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyspark.sql import DataFrame, SparkSession

from penstock.events.statistics import BEFORE_ALL, StatisticsPlace
from penstock.history.errors import LakeNotMigrated
from penstock.history.lake.delta import LakeFiles, TableState, checked, explained
from penstock.history.lake.rows import lake_facts
from penstock.history.lake.schema import DELIVERIES, JOBS, POSITION, TABLES
from penstock.history.lake.writer import LakeTarget, LakeWrite

OLD_LOG = "_log"
"""The log of lakes before Delta tables, which were Parquet files with a log of Penstock's own."""


class Lake:
    """The tables of a lake, which need not exist yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.path = checked(path)
        self.tables = {name: LakeFiles(path, table) for name, table in TABLES.items()}
        self.committing = Lock()
        """Held by threads that add to the same table: of two commits at the same time Delta refuses one."""
        self._places: dict[str, StatisticsPlace] = {}

    def place(self, table: str) -> StatisticsPlace:
        """Return the last attempt in a table; read once, because only this process adds.

        The table's transaction names the position. Which rows of that position it has is seen in the rows.
        """
        if table not in self._places:
            self._places[table] = _last_place(self.tables[table])
        return self._places[table]

    def targets(self) -> list[LakeTarget]:
        """Return where attempts go to, and the last one that each table has; to be asked before they are read."""
        targets = []
        for name in (DELIVERIES.name, JOBS.name):
            files, after = self.tables[name], self.place(name)
            upto = None if after == BEFORE_ALL else after.position
            targets.append(LakeTarget(files, after, TableState(upto, files.state().forgotten)))
        return targets

    def add(self, written: LakeWrite, targets: Sequence[LakeTarget]) -> None:
        """Commit what tasks have written, one table after the other; a table that has it all is left alone."""
        for target in targets:
            name = target.files.table.name
            if written.upto > target.after:
                with self.committing:
                    target.files.commit(written.files.get(name, ()), written.upto.position, target.before)
                self._places[name] = written.upto

    def days(self) -> list[str]:
        """Return the days that have deliveries."""
        return sorted({file.date for file in self.tables[DELIVERIES.name].files() if file.date is not None})

    def facts(self, days: Sequence[str] | None = None) -> DataFrame:
        """Return the facts of some days, or of all."""
        files = [file for file in self.tables[DELIVERIES.name].files() if days is None or file.date in days]
        return lake_facts(self.tables[DELIVERIES.name].frame(self.spark, files))

    def frame(self, table: str) -> DataFrame:
        """Return the rows of a table as of now."""
        files = self.tables[table]
        return files.frame(self.spark, files.files())

    def compact(self, day: str | None = None) -> dict[str, int]:
        """Let Delta combine small files; return how many were replaced by table."""
        return {
            name: files.compact(day) for name, files in self.tables.items() if day is None or files.table.partitions
        }

    def tidy(self, before: str | None = None) -> None:
        """Compact the days that have become slow to read, and delete what left the tables a week ago.

        The days before a day leave first.
        """
        for files in self.tables.values():
            if before is not None:
                files.drop_before(before)
            for day in files.crowded():
                files.compact(day)
            files.vacuum()


def open_lake(spark: SparkSession, path: str) -> Lake:
    """Return the lake in a directory or bucket; LakeNotMigrated if it has the format of an older version."""
    lake = Lake(spark, path)
    if has_old_log(lake.path) and lake.tables[DELIVERIES.name].state().upto is None:
        raise LakeNotMigrated(lake.path)
    return lake


def has_old_log(path: str) -> bool:
    """Return whether a lake was written by a version before Delta tables."""
    try:
        root = pyarrow.fs.PyFileSystem(DeltaStorageHandler(path))
    except TableNotFoundError:
        return False
    with explained(path):
        return any(entry.path.endswith(".json") for entry in entries(root, OLD_LOG))


def entries(root: pyarrow.fs.FileSystem, directory: str) -> list[pyarrow.fs.FileInfo]:
    """Return what is in a directory; nothing if it does not exist."""
    return list(root.get_file_info(pyarrow.fs.FileSelector(directory, allow_not_found=True)))


def _last_place(files: LakeFiles) -> StatisticsPlace:
    version = files.state().upto
    if version is None:
        return BEFORE_ALL
    is_attempt = files.table == DELIVERIES
    columns = [POSITION, "job_id", *(("attempt", "attempted_at") if is_attempt else ())]
    rows = files.read(files.files(f"{POSITION} >= {version}"), columns).to_pylist()
    places = [_place(row, is_attempt=is_attempt) for row in rows if row[POSITION] == version]
    return max(places, default=StatisticsPlace(version, "", 0, 0))


def _place(row: dict[str, Any], *, is_attempt: bool) -> StatisticsPlace:
    if not is_attempt:
        # A job has one attempt at a position, and its row came with it.
        return StatisticsPlace(row[POSITION], row["job_id"], 2**62, 0)
    at_ms = round(row["attempted_at"].timestamp() * 1000)
    return StatisticsPlace(row[POSITION], row["job_id"], row["attempt"], at_ms)
