"""A lake of Parquet files: `day=…/batch=…/*.parquet`, and the log of the batches that count (lake_log.py).

A batch's directory has the batch's name, made from its last attempt: to write it again replaces what a crash left.

The Parquet files of a lake: `day=…/batch=…/*.parquet`.

Small files on whatever file system Spark writes to: a local disk, HDFS, an object store.

Which batches a lake holds: one small file for each, written when the batch's data is complete.

A reader takes the data of committed batches and of no others, so it sees a batch as a whole or not at all.
A compaction is a batch too, and names those whose place it takes in its day: with its one file it comes and they go.

A day's many small files become few. Killed at any point, every fact is read once.

1. The facts of the day's batches are written once more, under the name of the compaction: nobody reads them yet.
2. The compaction's commit says which batches it takes the place of: with it readers change over.
3. What was replaced is deleted by the next compaction, not by this one: somebody may be reading it.
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
# Without a schema Spark would take days for dates, and the names of batches for whatever they look like.
_STORED = StructType([*FACTS.fields]).add(BATCH, StringType())


def directory_of(day: str, batch: str) -> str:
    """Where a batch's facts of a day are, in the lake."""
    return f"{DAY}={day}/{BATCH}={batch}"


def write(facts: DataFrame, path: str, batch: str) -> None:
    """Write a batch's directories, in place of any of the same name."""
    (
        facts.withColumn(BATCH, f.lit(batch))
        .sortWithinPartitions("group_key", "at_ms")
        .write.partitionBy(DAY, BATCH)
        .mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .parquet(path)
    )


def read(spark: SparkSession, path: str, wanted: Sequence[tuple[str, str]]) -> DataFrame:
    """The facts of some batches of some days."""
    if not wanted:
        return spark.createDataFrame([], FACTS)
    places = [f"{path}/{directory_of(day, batch)}" for day, batch in wanted]
    return spark.read.schema(_STORED).option("basePath", path).parquet(*places).select(*FACTS.names)


class HadoopFiles:
    """The files under one directory, by their paths in it."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        # PySpark has no public door to Hadoop's file systems; this is the one its own code uses.
        self._jvm: Any = spark._jvm
        self._root = root
        configuration = spark._jsc.hadoopConfiguration()
        self._system: Any = self._path("").getFileSystem(configuration)

    def names(self, directory: str) -> list[str]:
        """What a directory holds, in order; nothing if there is no such directory."""
        path = self._path(directory)
        if not self._system.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(path))

    def read(self, path: str) -> bytes:
        """A file's contents."""
        stream = self._system.open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, path: str, contents: bytes) -> None:
        """A whole file, or none: it gets its name when it is complete."""
        directory, _, name = path.rpartition("/")
        unnamed = self._path(f"{directory}/.{name}.unfinished")
        stream = self._system.create(unnamed, True)
        try:
            stream.write(contents)
        finally:
            stream.close()
        if not self._system.rename(unnamed, self._path(path)) and not self._system.exists(self._path(path)):
            raise OSError(f"{self._path(path)} could not be written: its file system refused to rename a file")

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with all it holds, if it is there."""
        self._system.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._root}/{path}" if path else self._root)


LOG = "_log"


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch that is in the lake: its days with their rows, and its last attempt."""

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
        """The last attempt in the lake."""
        return max((commit.upto for commit in self.commits), default=BEFORE_ALL)

    @property
    def replaced(self) -> frozenset[tuple[str, str]]:
        """Days and batches whose data a compaction has taken over."""
        return frozenset((day, old) for commit in self.commits for day in commit.days for old in commit.replaces)

    def live(self) -> dict[str, dict[str, int]]:
        """By day the batches to read, with their rows."""
        gone = self.replaced
        days: dict[str, dict[str, int]] = {}
        for commit in self.commits:
            for day, rows in commit.days.items():
                if (day, commit.batch) not in gone:
                    days.setdefault(day, {})[commit.batch] = rows
        return dict(sorted(days.items()))


_decode = msgspec.json.Decoder(Commit).decode


def read_log(files: HadoopFiles) -> LakeContents:
    """What the lake holds now."""
    names = [name for name in files.names(LOG) if name.endswith(".json") and not name.startswith(".")]
    return LakeContents(tuple(_decode(files.read(f"{LOG}/{name}")) for name in names))


def write_commit(files: HadoopFiles, commit: Commit) -> None:
    """From now on the batch is in the lake."""
    files.write(f"{LOG}/{commit.batch}.json", msgspec.json.encode(commit))


def drop_commit(files: HadoopFiles, batch: str) -> None:
    """Forget a batch whose data is gone."""
    files.delete(f"{LOG}/{batch}.json")


ROWS_PER_FILE = 1_000_000
_PREFIX = "compacted-"


def compact(spark: SparkSession, path: str, files: HadoopFiles, day: str) -> Compacted | None:
    """Take the place of a day's small batches; None if there is at most one."""
    before = read_log(files)
    batches = {name: rows for name, rows in before.live().get(day, {}).items() if rows < ROWS_PER_FILE}
    if len(batches) < 2:
        return None
    rows = sum(batches.values())
    name = _next_name(before, day)
    facts = read(spark, path, [(day, batch) for batch in batches])
    # By group, so that the facts of one are side by side: they compress well, and a search skips the other files.
    write(facts.repartitionByRange(-(-rows // ROWS_PER_FILE), "group_key", "at_ms"), path, name)
    written = read(spark, path, [(day, name)]).count()
    if written != rows:
        raise FailedPrecondition(
            f"{written} of the {rows} facts of {day} were written, so that nothing was replaced: "
            "the lake's files do not hold what its log says; restore them, or delete the day and its log"
        )
    _still_live(files, day, set(batches))
    replaced = [commit for commit in before.commits if commit.batch in batches]
    commit = Commit(
        batch=name,
        upto=max(commit.upto for commit in replaced),
        days={day: rows},
        replaces=_heirs(before, replaced),
    )
    write_commit(files, commit)
    return Compacted(day, rows, len(batches))


def sweep(files: HadoopFiles) -> None:
    """Delete the data that compactions have replaced, then the commits that have no data left."""
    contents = read_log(files)
    gone = contents.replaced
    for day, batch in sorted(gone):
        files.delete(directory_of(day, batch))
    for commit in contents.commits:
        # One without data still tells how far the lake goes, unless another does.
        if all((day, commit.batch) in gone for day in commit.days) and (commit.days or commit.upto < contents.upto):
            drop_commit(files, commit.batch)


def _heirs(contents: LakeContents, replaced: list[Commit]) -> tuple[str, ...]:
    """Those replaced, and those that they had replaced: a batch of two days outlives the compaction of one."""
    known = {commit.batch for commit in contents.commits}
    inherited = {name for commit in replaced for name in commit.replaces} & known
    return tuple(sorted(inherited | {commit.batch for commit in replaced}))


def _next_name(contents: LakeContents, day: str) -> str:
    known = [commit.batch for commit in contents.commits if commit.batch.startswith(f"{_PREFIX}{day}-")]
    return f"{_PREFIX}{day}-{max((int(name.rpartition('-')[2]) for name in known), default=0) + 1:06}"


def _still_live(files: HadoopFiles, day: str, batches: set[str]) -> None:
    if not batches <= read_log(files).live().get(day, {}).keys():
        raise FailedPrecondition(f"another compaction of {day} has ended meanwhile: run one at a time")


BATCHES_PER_DAY = 200


class ParquetLake:
    """Facts in a directory that any file system of Hadoop's can hold. One process adds, any number read."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/")
        self._files = HadoopFiles(spark, self._path)
        self._upto: StatisticsPlace | None = None

    def upto(self) -> StatisticsPlace:
        """The last attempt in the lake; looked up once, for only this process adds."""
        if self._upto is None:
            self._upto = read_log(self._files).upto
        return self._upto

    def add(self, facts: DataFrame, days: dict[str, int], upto: StatisticsPlace) -> None:
        """Write the data, then the file that makes it count."""
        batch = batch_name(upto)
        if days:
            # All of a day in one file: batches are small, and many small files make slow reads.
            write(facts.coalesce(1) if len(days) == 1 else facts.repartition(f.col(DAY)), self._path, batch)
        write_commit(self._files, Commit(batch=batch, upto=upto, days=days))
        self._upto = upto

    def days(self) -> list[str]:
        """The days that have facts."""
        return list(read_log(self._files).live())

    def facts(self, days: Sequence[str] | None = None) -> DataFrame:
        """The facts of committed batches."""
        live = read_log(self._files).live()
        wanted = [(day, batch) for day in (live if days is None else days) for batch in live.get(day, ())]
        return read(self._spark, self._path, wanted)

    def compact(self, day: str) -> Compacted | None:
        """Write a day's facts into few files; what earlier compactions have replaced is deleted first."""
        sweep(self._files)
        return compact(self._spark, self._path, self._files, day)

    def tidy(self) -> None:
        """Compact the days of many batches."""
        for day, batches in read_log(self._files).live().items():
            if len(batches) >= BATCHES_PER_DAY:
                self.compact(day)


def batch_name(upto: StatisticsPlace) -> str:
    """The name of the batch that ends at a place: the same for the same batch, and in the order of batches."""
    rest = blake2b(msgspec.json.encode(upto), digest_size=6).hexdigest()
    return f"{max(upto.position, 0):020}-{rest}"
