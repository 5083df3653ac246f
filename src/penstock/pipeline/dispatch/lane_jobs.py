"""The jobs of the lanes whose turn it is, read in parallel ranges of turns; reading changes nothing."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.jobs.lane_claiming import AwakeRange
from penstock.jobs.queries import Dialect
from penstock.pipeline.database import Database
from penstock.pipeline.dispatch.group_hash import hashes_of
from penstock.pipeline.dispatch.lane_rows import lane_rows
from penstock.pipeline.dispatch.lane_schema import LANE_JOBS
from penstock.pipeline.dispatch.postgres_lanes import postgres_lanes

_ROWS_AT_ONCE = 10_000


def lane_jobs(
    spark: SparkSession, database: Database, ranges: Sequence[AwakeRange], *, owner: str, share: int, now_ms: int
) -> DataFrame:
    """A frame of LANE_JOBS, at most `share` jobs of a lane and mode; one partition per range."""

    def read(numbers: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read_lanes(database, ranges[number], owner, share, now_ms)

    return spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(read, LANE_JOBS)


def read_lanes(
    database: Database, span: AwakeRange, owner: str, share: int, now_ms: int
) -> Iterator[pyarrow.RecordBatch]:
    """One range, in the process of a task."""
    schema = to_arrow_schema(LANE_JOBS)
    for batch in _stored(database, span, owner, share, now_ms):
        hashes = hashes_of(batch.column("group_key"))
        arrays = [
            hashes if field.name == "group_hash" else batch.column(field.name).cast(field.type) for field in schema
        ]
        yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _stored(database: Database, span: AwakeRange, owner: str, share: int, now_ms: int) -> Iterator[pyarrow.RecordBatch]:
    if database.dialect is Dialect.POSTGRES:
        yield from postgres_lanes(database, span, owner, share, now_ms)
        return
    fields = [field for field in to_arrow_schema(LANE_JOBS) if field.name != "group_hash"]
    rows = lane_rows(database, span, owner, share, now_ms)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        columns = zip(zip(*some, strict=True), fields, strict=True)
        arrays = [pyarrow.array(values, field.type) for values, field in columns]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])
