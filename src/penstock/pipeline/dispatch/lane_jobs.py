"""The jobs of the lanes whose turn it is, read and planned in parallel ranges of turns; reading changes nothing."""

from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.jobs.lane_claiming import AwakeRange
from penstock.jobs.queries import Dialect
from penstock.pipeline.database import Database
from penstock.pipeline.dispatch.group_hash import hashes_of
from penstock.pipeline.dispatch.lane_plan import first_lanes, planned, whole_lanes
from penstock.pipeline.dispatch.lane_rows import lane_rows
from penstock.pipeline.dispatch.lane_run import COLUMNS
from penstock.pipeline.dispatch.lane_schema import LANE_JOBS
from penstock.pipeline.dispatch.packed_plan import PACKED, packed
from penstock.pipeline.dispatch.postgres_lanes import postgres_lanes
from penstock.pipeline.dispatch.round_call import RoundCall, announced
from penstock.pipeline.lasting_memory import spare_collections

_ROWS_AT_ONCE = 10_000


def packed_plans(spark: SparkSession, database: Database, parts: int, tasks: int) -> DataFrame:
    """What the announced round publishes, packed for so many tasks; so many parts of it are read at once."""

    def read(numbers: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        call = announced()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in planned_lanes(database, call.ranges[number::parts], call):
                    yield packed(rows, hashes_of(rows.column("group_key")), tasks)
        spare_collections("reading lanes")

    return spark.range(0, parts, 1, parts).mapInArrow(read, PACKED)


def planned_lanes(database: Database, spans: Iterable[AwakeRange], call: RoundCall) -> Iterator[pyarrow.RecordBatch]:
    """The first lanes of ranges, each lane with at most `share` jobs that go, in order; in the process of a task."""
    for span in spans:
        for rows in first_lanes(whole_lanes(_stored(database, span, call)), call.rows):
            yield planned(rows, call.now_ms, call.share).select(COLUMNS)


def _stored(database: Database, span: AwakeRange, call: RoundCall) -> Iterator[pyarrow.RecordBatch]:
    if database.dialect is Dialect.POSTGRES:
        yield from postgres_lanes(database, span, call)
        return
    fields = [field for field in to_arrow_schema(LANE_JOBS) if field.name != "group_hash"]
    rows = lane_rows(database, span, call)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        columns = zip(zip(*some, strict=True), fields, strict=True)
        arrays = [pyarrow.array(values, field.type) for values, field in columns]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])
