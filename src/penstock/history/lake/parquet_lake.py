"""A lake of Parquet files, `day=…/batch=…/*.parquet`, and the log of its committed batches.

A batch's directory is named after its last attempt, so writing it again replaces what a crash left. A small log file
per batch is written when its data is complete. Readers use committed batches only, so they see a batch completely or
not at all. A compaction is a batch that names those it replaces in its day: its one log file adds it and removes them.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from penstock.domain.errors import FailedPrecondition
from penstock.events.statistics import BEFORE_ALL, StatisticsPlace
from penstock.history.lake.facts import DAY, FACTS
from penstock.history.lake.lake import Compacted

BATCH = "batch"
BATCHES_PER_DAY = 200
LOG = "_log"
ROWS_PER_FILE = 1_000_000
_PREFIX = "compacted-"
# Without a schema, Spark would read days as dates, and guess the types of batch names.
_STORED = StructType([*FACTS.fields]).add(BATCH, StringType())


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch in the lake: its rows by day, and its last attempt."""

    batch: str
    upto: StatisticsPlace
    days: dict[str, int] = {}
    replaces: tuple[str, ...] = ()
    """The batches whose rows of this one's day are in it."""


class LakeContents(msgspec.Struct, frozen=True):
    """All commits, in the order of their names."""

    commits: tuple[Commit, ...]

    @property
    def upto(self) -> StatisticsPlace:
        """Return the last attempt in the lake."""
        return max((commit.upto for commit in self.commits), default=BEFORE_ALL)

    @property
    def replaced(self) -> frozenset[tuple[str, str]]:
        """Return the days and batches that compactions have replaced."""
        return frozenset((day, old) for commit in self.commits for day in commit.days for old in commit.replaces)

    def live(self) -> dict[str, dict[str, int]]:
        """Return the batches to read by day, with their rows."""
        gone = self.replaced
        days: dict[str, dict[str, int]] = {}
        for commit in self.commits:
            for day, rows in commit.days.items():
                if (day, commit.batch) not in gone:
                    days.setdefault(day, {})[commit.batch] = rows
        return dict(sorted(days.items()))


class HadoopFiles:
    """The files under one directory, on any file system that Spark can write to."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        # PySpark has no public access to Hadoop's file systems; its own code uses this.
        self._jvm: Any = spark._jvm
        self._root = root
        configuration = spark._jsc.hadoopConfiguration()
        self._system: Any = self._path("").getFileSystem(configuration)

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, in order; none if it does not exist."""
        path = self._path(directory)
        if not self._system.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(path))

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""
        stream = self._system.open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, path: str, contents: bytes) -> None:
        """Write a file atomically: it gets its name when it is complete."""
        directory, _, name = path.rpartition("/")
        unfinished = self._path(f"{directory}/.{name}.unfinished")
        stream = self._system.create(unfinished, True)
        try:
            stream.write(contents)
        finally:
            stream.close()
        if not self._system.rename(unfinished, self._path(path)) and not self._system.exists(self._path(path)):
            raise OSError(f"{self._path(path)} could not be written: its file system refused to rename a file")

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its contents, if it exists."""
        self._system.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._root}/{path}" if path else self._root)


class ParquetLake:
    """Facts in a directory of any Hadoop file system. One process adds, any number read."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/")
        self._files = HadoopFiles(spark, self._path)
        self._upto: StatisticsPlace | None = None

    def upto(self) -> StatisticsPlace:
        """Return the last attempt in the lake; read once, because only this process adds."""
        if self._upto is None:
            self._upto = read_log(self._files).upto
        return self._upto

    def add(self, facts: DataFrame, days: dict[str, int], upto: StatisticsPlace) -> None:
        """Write the data, then the commit."""
        batch = batch_name(upto)
        if days:
            # One file per day, because many small files are slow to read.
            write(facts.coalesce(1) if len(days) == 1 else facts.repartition(f.col(DAY)), self._path, batch)
        write_commit(self._files, Commit(batch=batch, upto=upto, days=days))
        self._upto = upto

    def days(self) -> list[str]:
        """Return the days that have facts."""
        return list(read_log(self._files).live())

    def facts(self, days: Sequence[str] | None = None) -> DataFrame:
        """Return the facts of committed batches."""
        live = read_log(self._files).live()
        wanted = [(day, batch) for day in (live if days is None else days) for batch in live.get(day, ())]
        return read(self._spark, self._path, wanted)

    def compact(self, day: str) -> Compacted | None:
        """Write a day's facts to few files, after deleting what earlier compactions replaced."""
        sweep(self._files)
        return compact(self._spark, self._path, self._files, day)

    def tidy(self) -> None:
        """Compact the days with many batches."""
        for day, batches in read_log(self._files).live().items():
            if len(batches) >= BATCHES_PER_DAY:
                self.compact(day)


def batch_name(upto: StatisticsPlace) -> str:
    """Return the name of the batch that ends at a place; names have the order of batches."""
    rest = blake2b(msgspec.json.encode(upto), digest_size=6).hexdigest()
    return f"{max(upto.position, 0):020}-{rest}"


def compact(spark: SparkSession, path: str, files: HadoopFiles, day: str) -> Compacted | None:
    """Replace a day's small batches by one; None if there is at most one.

    A crash at any point leaves every fact readable once: the new files become visible with their commit, and the
    replaced ones are deleted by the next compaction, because someone may still read them.
    """
    before = read_log(files)
    batches = {name: rows for name, rows in before.live().get(day, {}).items() if rows < ROWS_PER_FILE}
    if len(batches) < 2:
        return None
    rows = sum(batches.values())
    name = _next_name(before, day)
    facts = read(spark, path, [(day, batch) for batch in batches])
    # By group, so that its facts are adjacent: they compress well, and a search skips the other files.
    write(facts.repartitionByRange(-(-rows // ROWS_PER_FILE), "group_key", "at_ms"), path, name)
    written = read(spark, path, [(day, name)]).count()
    if written != rows:
        raise FailedPrecondition(
            f"{written} of the {rows} facts of {day} were written, so nothing was replaced: "
            "the lake's files do not hold what its log says; restore them, or delete the day and its log"
        )
    _check_live(files, day, set(batches))
    replaced = [commit for commit in before.commits if commit.batch in batches]
    commit = Commit(
        batch=name,
        upto=max(commit.upto for commit in replaced),
        days={day: rows},
        replaces=_all_replaced(before, replaced),
    )
    write_commit(files, commit)
    return Compacted(day, rows, len(batches))


def sweep(files: HadoopFiles) -> None:
    """Delete the data that compactions have replaced, then the commits without data."""
    contents = read_log(files)
    gone = contents.replaced
    for day, batch in sorted(gone):
        files.delete(directory_of(day, batch))
    for commit in contents.commits:
        # A commit without data may still be the one that says how far the lake goes.
        if all((day, commit.batch) in gone for day in commit.days) and (commit.days or commit.upto < contents.upto):
            drop_commit(files, commit.batch)


def _all_replaced(contents: LakeContents, replaced: list[Commit]) -> tuple[str, ...]:
    """Return those replaced, and those that they had replaced: a batch of two days outlives the compaction of one."""
    known = {commit.batch for commit in contents.commits}
    inherited = {name for commit in replaced for name in commit.replaces} & known
    return tuple(sorted(inherited | {commit.batch for commit in replaced}))


def _next_name(contents: LakeContents, day: str) -> str:
    known = [commit.batch for commit in contents.commits if commit.batch.startswith(f"{_PREFIX}{day}-")]
    return f"{_PREFIX}{day}-{max((int(name.rpartition('-')[2]) for name in known), default=0) + 1:06}"


def _check_live(files: HadoopFiles, day: str, batches: set[str]) -> None:
    if not batches <= read_log(files).live().get(day, {}).keys():
        raise FailedPrecondition(f"another compaction of {day} ended meanwhile: run one at a time")


_decode = msgspec.json.Decoder(Commit).decode


def read_log(files: HadoopFiles) -> LakeContents:
    """Return what the lake holds now."""
    names = [name for name in files.names(LOG) if name.endswith(".json") and not name.startswith(".")]
    return LakeContents(tuple(_decode(files.read(f"{LOG}/{name}")) for name in names))


def write_commit(files: HadoopFiles, commit: Commit) -> None:
    """Commit a batch."""
    files.write(f"{LOG}/{commit.batch}.json", msgspec.json.encode(commit))


def drop_commit(files: HadoopFiles, batch: str) -> None:
    """Delete the commit of a batch whose data is deleted."""
    files.delete(f"{LOG}/{batch}.json")


def directory_of(day: str, batch: str) -> str:
    """Return the directory of a batch's facts of a day."""
    return f"{DAY}={day}/{BATCH}={batch}"


def write(facts: DataFrame, path: str, batch: str) -> None:
    """Write a batch's directories, replacing any of the same name."""
    (
        facts.withColumn(BATCH, f.lit(batch))
        .sortWithinPartitions("group_key", "at_ms")
        .write.partitionBy(DAY, BATCH)
        .mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .parquet(path)
    )


def read(spark: SparkSession, path: str, wanted: Sequence[tuple[str, str]]) -> DataFrame:
    """Return the facts of some batches of some days."""
    if not wanted:
        return spark.createDataFrame([], FACTS)
    places = [f"{path}/{directory_of(day, batch)}" for day, batch in wanted]
    return spark.read.schema(_STORED).option("basePath", path).parquet(*places).select(*FACTS.names)
