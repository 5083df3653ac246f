"""What an audit asks of a database beside the tables: which events wait for their jobs, and who was changed when."""

from collections.abc import Iterator
from contextlib import closing

import msgspec
import pyarrow
from pyspark.sql import DataFrame, SparkSession

from penstock.events.api.subscriptions import PATH
from penstock.pipeline.database import Database
from penstock.pipeline.sources.literal import literal
from penstock.pipeline.sources.reading import reading_of

_WAITING = "SELECT id FROM {}events WHERE fanned_out = 0 AND id > {} ORDER BY id LIMIT {}"
_CHANGED = "SELECT target, max(at_ms) FROM {}changes WHERE action = '{}' GROUP BY target"
_CHANGE = f"PATCH {PATH}/{{id}}"
_ROWS_AT_ONCE = 10_000
_target = msgspec.json.Decoder(dict[str, str]).decode


def waiting_events(spark: SparkSession, database: Database) -> DataFrame:
    """The ids of events that were not fanned out yet; read by a task, as there may be many."""

    def read(_: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        last = ""
        with closing(reading_of(database)) as reading:
            while True:
                text = _WAITING.format(reading.prefix, literal(last, database.dialect), _ROWS_AT_ONCE)
                ids = [event_id for (event_id,) in reading.rows(text)]
                yield pyarrow.RecordBatch.from_arrays([pyarrow.array(ids, pyarrow.string())], ["id"])
                if len(ids) < _ROWS_AT_ONCE:
                    return
                last = ids[-1]

    return spark.range(1, numPartitions=1).mapInArrow(read, "id string")


def changed_subscriptions(database: Database) -> dict[str, int]:
    """When subscriptions were changed last, as far as the API wrote it down."""
    with closing(reading_of(database)) as reading:
        rows = reading.rows(_CHANGED.format(reading.prefix, _CHANGE))
    return {_target(target)["id"]: at_ms for target, at_ms in rows}
