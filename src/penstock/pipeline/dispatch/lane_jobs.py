"""The jobs of the lanes whose turn it is, read in parallel ranges of turns; reading changes nothing."""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy
import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from penstock.jobs.lane_claiming import AwakeRange
from penstock.jobs.queries import Dialect
from penstock.pipeline.database import Database
from penstock.pipeline.dispatch.group_hash import hashes_of
from penstock.pipeline.dispatch.lane_rows import lane_rows
from penstock.pipeline.dispatch.lane_schema import LANE_JOBS
from penstock.pipeline.dispatch.postgres_lanes import postgres_lanes
from penstock.pipeline.dispatch.round_call import RoundCall, announced
from penstock.pipeline.lasting_memory import spare_collections

_ROWS_AT_ONCE = 10_000
_READ = StructType(
    [*LANE_JOBS, StructField("share", LongType(), nullable=False), StructField("now_ms", LongType(), nullable=False)]
)


def lane_jobs(spark: SparkSession, database: Database, parts: int) -> DataFrame:
    """LANE_JOBS of the announced round, with its `share` and `now_ms`; so many tasks read its ranges."""

    def read(numbers: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        call = announced()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for span in call.ranges[number::parts]:
                    yield from read_lanes(database, span, call)
        spare_collections("reading lanes")

    return spark.range(0, parts, 1, parts).mapInArrow(read, _READ)


def read_lanes(database: Database, span: AwakeRange, call: RoundCall) -> Iterator[pyarrow.RecordBatch]:
    """One range, at most `share` jobs of a lane and mode; in the process of a task."""
    schema = to_arrow_schema(_READ)
    for batch in _stored(database, span, call):
        made = {
            "group_hash": hashes_of(batch.column("group_key")),
            "share": pyarrow.array(numpy.full(len(batch), call.share)),
            "now_ms": pyarrow.array(numpy.full(len(batch), call.now_ms)),
        }
        arrays = [
            made[name] if name in made else batch.column(name).cast(schema.field(name).type) for name in schema.names
        ]
        yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _stored(database: Database, span: AwakeRange, call: RoundCall) -> Iterator[pyarrow.RecordBatch]:
    owner, share, now_ms = call.owner.name, call.share, call.now_ms
    if database.dialect is Dialect.POSTGRES:
        yield from postgres_lanes(database, span, owner, share, now_ms)
        return
    fields = [field for field in to_arrow_schema(LANE_JOBS) if field.name != "group_hash"]
    rows = lane_rows(database, span, owner, share, now_ms)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        columns = zip(zip(*some, strict=True), fields, strict=True)
        arrays = [pyarrow.array(values, field.type) for values, field in columns]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])
