"""One Delta table: the files in it, and the commits that add some. Everything that changes it is Delta's own protocol.

Tasks write Parquet files that no reader sees; the driver's commit makes all of a batch visible at once. Each commit
carries an application transaction, the position up to which the table holds everything. So of two processes that add
the same rows one is refused, and a batch that is repeated after a crash finds that it is there already.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

import msgspec
import pyarrow
import pyarrow.fs
import pyarrow.parquet
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession

from penstock.domain.errors import FailedPrecondition
from penstock.edge.clock import SystemClock
from penstock.history.errors import LakeBroken, RowsForgotten
from penstock.history.lake.schema import DATE, POSITION, LakeTable

ADDED = "facts"
"""The application whose transactions say how far a table goes."""

FORGOTTEN = "forget"
"""The application whose transactions count how often rows were forgotten."""

STORES = ("", "file", "s3", "gs", "az", "abfs", "abfss", "hdfs")
"""Where a lake can be, by the scheme of its URL. An unknown one would look like an empty lake."""

LEAST_FILES = 10
"""A day with fewer small files is not worth compacting."""

# Statistics of position only. A commit has no others, and a reader takes the lack of one that the table promises for a
# file without such rows. Nor may names and keys stay in the log when they leave the table.
_PROPERTIES = {
    "delta.checkpointInterval": "50",
    "delta.enableExpiredLogCleanup": "true",
    "delta.dataSkippingStatsColumns": POSITION,
}
_SMALL_BYTES = 32 * 2**20
_ROWS_PER_READ = 64 * 1024
_TRIES = 20


class TableState(msgspec.Struct, frozen=True):
    """The position up to which everything is in a table, None if nothing is, and how often rows were forgotten."""

    upto: int | None = None
    forgotten: int | None = None


class NewFile(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file that was written and is not yet in the table."""

    path: str
    size: int
    rows: int
    date: str | None
    lowest: int
    highest: int


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the table."""

    path: str
    size: int
    rows: int
    date: str | None


class LakeFiles:
    """The files of one table, wherever the lake is; it can be pickled and used by tasks."""

    def __init__(self, root: str, table: LakeTable) -> None:
        self.uri = f"{checked(root)}/{table.name}"
        self.table = table

    @property
    def is_local(self) -> bool:
        """Return whether Spark reads the files without a package for the store."""
        return is_local(self.uri)

    def opened(self) -> pyarrow.fs.FileSystem:
        """Return the directory of the table as a file system."""
        return pyarrow.fs.PyFileSystem(DeltaStorageHandler(self.uri))

    def delta(self) -> DeltaTable | None:
        """Return the table as of now; None if it does not exist."""
        with explained(self.uri):
            return DeltaTable(self.uri) if DeltaTable.is_deltatable(self.uri) else None

    def current(self) -> DeltaTable:
        """Return the table as of now, after creating it or adding the columns that it lacks."""
        with explained(self.uri):
            DeltaTable.create(
                self.uri,
                self.table.arrow,
                mode="ignore",
                name=self.table.name,
                description=self.table.text,
                partition_by=list(self.table.partitions),
                configuration=_PROPERTIES,
            )
            delta = DeltaTable(self.uri)
            if not _PROPERTIES.items() <= delta.metadata().configuration.items():
                delta.alter.set_table_properties(_PROPERTIES)
                delta.update_incremental()
            known = {field.name for field in delta.schema().fields}
            lacking = [field for field in Schema.from_arrow(self.table.arrow).fields if field.name not in known]
            if lacking:
                delta.alter.add_columns(lacking)
                delta.update_incremental()
            return delta

    def state(self, application: str = ADDED) -> TableState:
        """Return how far the table goes; to be asked before the rows are read that are to be added."""
        delta = self.delta()
        return TableState() if delta is None else _state(delta, application)

    def write(self, rows: pyarrow.Table, name: str) -> list[NewFile]:
        """Write rows to files, one for each day; the table must exist."""
        if not rows.num_rows:
            return []
        columns = [name for name in self.table.names if name not in self.table.partitions]
        files = []
        directory = self.opened()
        for date, share in _by_date(rows) if self.table.partitions else [(None, rows)]:
            path = f"{name}.parquet" if date is None else f"{DATE}={date}/{name}.parquet"
            pyarrow.parquet.write_table(share.select(columns), path, filesystem=directory, compression="zstd")
            bounds = pyarrow.compute.min_max(share.column(POSITION)).as_py()
            files.append(
                NewFile(
                    path=path,
                    size=directory.get_file_info(path).size,
                    rows=share.num_rows,
                    date=date,
                    lowest=bounds["min"] or 0,
                    highest=bounds["max"] or 0,
                )
            )
        return files

    def commit(self, files: Iterable[NewFile], upto: int, before: TableState, *, application: str = ADDED) -> None:
        """Add files and say how far the table goes; refused if it is not as it was `before` the rows were read.

        FailedPrecondition if it went on since then, RowsForgotten if the rows may contain some that were forgotten.
        """
        delta = self.current()
        now = _state(delta, application)
        if now.upto != before.upto:
            raise self._overtaken()
        if now.forgotten != before.forgotten:
            raise RowsForgotten(self.uri)
        # A transaction of its own application lets a commit fail that is made at the same time.
        transactions = [Transaction(application, upto), Transaction(FORGOTTEN, now.forgotten or 0)]
        try:
            self._commit(delta, files, transactions)
        except CommitFailedError as error:
            raise self._overtaken() from error

    def forget(self, where: str) -> int:
        """Delete the rows that meet a condition, and their files; return how many.

        First, rows that were read before now are refused, as they may be some of these.
        """
        delta = self.delta()
        if delta is None:
            return 0
        for _ in range(_TRIES):
            try:
                with explained(self.uri):
                    delta.update_incremental()
                    count = (delta.transaction_version(FORGOTTEN) or 0) + 1
                    self._commit(delta, (), [Transaction(FORGOTTEN, count)])
                    delta.update_incremental()
                    deleted = int(delta.delete(where).get("num_deleted_rows") or 0)
                    # Only files that left the table: others may be of a batch that is not yet committed.
                    delta.vacuum(0, dry_run=False, enforce_retention_duration=False, full=False)
                    return deleted
            except CommitFailedError:
                # A batch or a compaction came between.
                continue
        raise self._overtaken()

    def count(self, where: str) -> int:
        """Return how many rows meet a condition."""
        delta = self.delta()
        if delta is None:
            return 0
        with explained(self.uri):
            found = QueryBuilder().register("rows", delta).execute(f"SELECT count(*) AS n FROM rows WHERE {where}")
            return int(pyarrow.table(found.read_all()).column("n")[0].as_py())

    def _commit(self, delta: DeltaTable, files: Iterable[NewFile], transactions: list[Transaction]) -> None:
        now_ms = SystemClock().now_ms()
        with explained(self.uri):
            delta.create_write_transaction(
                [_added(file, now_ms) for file in files],
                "append",
                delta.schema(),
                list(self.table.partitions),
                commit_properties=CommitProperties(app_transactions=transactions),
            )

    def _overtaken(self) -> FailedPrecondition:
        return FailedPrecondition(f"another process added to {self.uri} meanwhile: run one facts job at a time")

    def files(self, where: str | None = None) -> list[LakeFile]:
        """Return the files that are in the table now; `where` leaves out those that have no such row."""
        delta = self.delta()
        if delta is None:
            return []
        wanted = None
        if where is not None:
            with explained(self.uri):
                wanted = {uri.rpartition("/")[2] for uri in delta.file_uris(file_pruning_predicate=where)}
        rows = pyarrow.table(delta.get_add_actions(flatten=True)).to_pylist()
        return [
            LakeFile(
                path=row["path"],
                size=row["size_bytes"],
                rows=row["num_records"] or 0,
                date=str(row[f"partition.{DATE}"]) if self.table.partitions else None,
            )
            for row in rows
            if wanted is None or row["path"].rpartition("/")[2] in wanted
        ]

    def frame(self, spark: SparkSession, files: Sequence[LakeFile]) -> DataFrame:
        """Return the rows of files, read by Spark itself, or by its tasks where the store would need a package."""
        schema = self.table.spark
        if not files:
            return spark.createDataFrame([], schema)
        if self.is_local:
            reader = spark.read.schema(schema).option("basePath", self.uri)
            return reader.parquet(*(f"{self.uri}/{file.path}" for file in files)).select(*schema.names)
        paths = spark.createDataFrame([(file.path, file.date) for file in files], "path string, date string")
        return paths.repartition(len(files)).mapInArrow(self._read_files, schema)

    def read(self, files: Sequence[LakeFile], columns: Sequence[str]) -> pyarrow.Table:
        """Return columns of a few files in this process."""
        if not files:
            return self.table.arrow.empty_table()
        directory = self.opened()
        read = [pyarrow.parquet.read_table(file.path, columns=list(columns), filesystem=directory) for file in files]
        return pyarrow.concat_tables(read, promote_options="default")

    def compact(self, date: str | None = None) -> int:
        """Let Delta combine the small files of a day; return how many it replaced."""
        delta = self.delta()
        if delta is None:
            return 0
        filters = None if date is None else [(DATE, "=", date)]
        try:
            with explained(self.uri):
                return int(delta.optimize.compact(partition_filters=filters)["numFilesRemoved"])
        except CommitFailedError as error:
            raise FailedPrecondition(f"rows of {self.uri} were deleted meanwhile: compact it again") from error

    def drop_before(self, date: str) -> int:
        """Let the days before a day leave the table; return how many files did. A vacuum deletes them a week later."""
        old = [file for file in self.files() if file.date is not None and file.date < date]
        delta = self.delta()
        if delta is None or not old:
            return 0
        with explained(self.uri):
            delta.delete(f"{DATE} < DATE '{date}'")
        return len(old)

    def crowded(self) -> list[str]:
        """Return the days with many small files."""
        small = [file.date for file in self.files() if file.size < _SMALL_BYTES and file.date is not None]
        return sorted({date for date in small if small.count(date) >= LEAST_FILES})

    def vacuum(self, *, now: bool = False) -> int:
        """Delete files that left the table a week ago, or with `now` all that did; return how many."""
        delta = self.delta()
        if delta is None:
            return 0
        with explained(self.uri):
            hours = 0 if now else None
            return len(delta.vacuum(hours, dry_run=False, enforce_retention_duration=not now, full=True))

    def _read_files(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        directory, schema = self.opened(), self.table.arrow
        for batch in batches:
            for row in batch.to_pylist():
                with pyarrow.parquet.ParquetFile(directory.open_input_file(row["path"])) as file:
                    for part in file.iter_batches(_ROWS_PER_READ):
                        yield _completed(part, schema, row["date"])


def checked(root: str) -> str:
    """Return the place of a lake without a slash at its end; InvalidPipelineOption if Delta cannot use it."""
    from penstock.spark.errors import InvalidPipelineOption

    if root.startswith("s3a://"):
        raise InvalidPipelineOption(f"{root} is the notation of Hadoop: write s3://{root[6:]}")
    scheme = urlsplit(root).scheme
    if scheme not in STORES:
        raise InvalidPipelineOption(
            f"{root} is not a place for a lake: use a directory, s3://, gs://, abfss:// or hdfs://"
        )
    if "%" in root and is_local(root):
        raise InvalidPipelineOption(f"{root} contains %, which the lake's library cannot read: use another directory")
    return root.removeprefix("file://").rstrip("/") if is_local(root) else root.rstrip("/")


def is_local(root: str) -> bool:
    """Return whether a lake is in a directory of this machine."""
    return urlsplit(root).scheme in ("", "file")


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn an error of the store into a sentence."""
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError) as error:
        raise LakeBroken(f"{uri} cannot be used: {error}") from error


def _state(delta: DeltaTable, application: str) -> TableState:
    return TableState(delta.transaction_version(application), delta.transaction_version(FORGOTTEN) or None)


def _added(file: NewFile, now_ms: int) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {POSITION: file.lowest},
        "maxValues": {POSITION: file.highest},
        "nullCount": {POSITION: 0},
    }
    partition = {} if file.date is None else {DATE: file.date}
    return AddAction(file.path, file.size, partition, now_ms, True, msgspec.json.encode(stats).decode())


def _by_date(rows: pyarrow.Table) -> Iterator[tuple[str, pyarrow.Table]]:
    dates = rows.column(DATE)
    for date in dates.unique().to_pylist():
        yield str(date), rows.filter(pyarrow.compute.equal(dates, pyarrow.scalar(date, dates.type)))


def _completed(batch: pyarrow.RecordBatch, schema: pyarrow.Schema, date: str | None) -> pyarrow.RecordBatch:
    """Return a batch of an older file, or without the column of its directory, with all columns."""
    import datetime

    columns = []
    for field in schema:
        if field.name in batch.schema.names:
            columns.append(batch.column(field.name).cast(field.type))
        elif field.name == DATE and date is not None:
            day = datetime.date.fromisoformat(date)
            columns.append(pyarrow.array([day] * batch.num_rows, field.type))
        else:
            columns.append(pyarrow.nulls(batch.num_rows, field.type))
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)
