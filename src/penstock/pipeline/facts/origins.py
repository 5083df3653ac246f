"""Attempts with what their jobs tell of them: each task looks up the jobs of its own attempts, by their keys."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import msgspec
import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from penstock.engine.store.postgres_address import PostgresAddress
from penstock.events.store.statements import Dialect, queries
from penstock.events.store.transaction import Row
from penstock.pipeline.database import Database
from penstock.pipeline.facts.columns import ORIGIN
from penstock.pipeline.lasting_memory import spare_collections

_LOOKED_UP = StructType([StructField("id", StringType()), *ORIGIN.fields])
_STATEMENT = "job_origins"
_BUSY_TIMEOUT_S = 10.0


def with_origins(attempts: DataFrame, database: Database) -> DataFrame:
    """Attempts and the columns `ORIGIN`, null where there is no such job any more.

    To look jobs up by key costs as much as there are attempts; a join would read all jobs for each batch.
    """
    schema = StructType([*attempts.schema.fields, *ORIGIN.fields])
    wanted = to_arrow_schema(schema)

    def look_up(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            ids = batch.column("job_id").drop_null().unique().to_pylist()
            jobs = _table(origin_rows(database, ids))
            found = pyarrow.Table.from_batches([batch]).join(jobs, "job_id", "id", "left outer")
            yield from found.select(wanted.names).cast(wanted).to_batches()
        spare_collections("looking up")

    return attempts.mapInArrow(look_up, schema)


def origin_rows(database: Database, job_ids: Sequence[str]) -> list[Row]:
    """The id and the columns `ORIGIN` of jobs, archived or not."""
    statement = queries(database.dialect)[_STATEMENT]
    if database.dialect is Dialect.POSTGRES:
        with closing(PostgresAddress(database.url).connect(database.schema)) as session:
            return session.execute(statement.encode(), {"ids": list(job_ids)}).fetchall()
    with closing(sqlite3.connect(f"{database.path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_S)) as connection:
        # A damaged name is better than none.
        connection.text_factory = lambda text: text.decode(errors="replace")
        return connection.execute(statement, {"ids": msgspec.json.encode(job_ids).decode()}).fetchall()


def _table(rows: Sequence[Row]) -> pyarrow.Table:
    schema = to_arrow_schema(_LOOKED_UP)
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pyarrow.Table.from_arrays(arrays, schema=schema)
