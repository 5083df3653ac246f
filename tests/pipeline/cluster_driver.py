"""A driver that asks the executors of a cluster where their penstock comes from; run by test_packaging_cluster."""

import json
import sys
from collections.abc import Iterator

import pyarrow

from penstock.spark.session import SessionSettings, spark_session

FIELDS = "executor string, package string, sql bigint, fnv bigint"


def look_around(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """What this executor sees of penstock: where it is, that its SQL came along, and that its rules work."""
    from importlib.resources import files

    from pyspark import SparkFiles

    import penstock
    from penstock.domain.message import fnv1a_32

    for batch in batches:
        sql = (files("penstock.events.store") / "sql").iterdir()
        found = {
            "executor": SparkFiles.getRootDirectory(),
            "package": penstock.__file__,
            "sql": len(list(sql)),
            "fnv": fnv1a_32("orders"),
        }
        yield pyarrow.RecordBatch.from_pylist([found] * batch.num_rows)


def main() -> None:
    """Print one JSON row per partition."""
    conf = dict(pair.split("=", 1) for pair in sys.argv[2:])
    with spark_session(SessionSettings(app_name="where", master=sys.argv[1], conf=conf)) as spark:
        rows = spark.range(0, 2, 1, 2).mapInArrow(look_around, FIELDS).collect()
        print(json.dumps([row.asDict() for row in rows]))


if __name__ == "__main__":
    main()
