"""A query that was told to end carries its micro-batch out, and begins no other."""

from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.supervisor import finish_after_batch

pytestmark = pytest.mark.xdist_group("spark")

WAIT_S = 60


def test_the_batch_that_runs_is_the_last(spark: SparkSession, tmp_path: Path) -> None:
    running, told = Event(), Event()
    begun: list[int] = []
    ended: list[int] = []

    def take(_: DataFrame, number: int) -> None:
        begun.append(number)
        running.set()
        assert told.wait(WAIT_S)
        ended.append(number)

    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = ticks.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
    # Without a pause: the next batch is due as soon as this one has ended.
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        assert running.wait(WAIT_S)
        finish_after_batch(query)
        told.set()
        assert query.awaitTermination(WAIT_S)
        assert begun == ended == [0]
        assert query.exception() is None
        assert (tmp_path / "commits" / "0").exists()
    finally:
        told.set()
        query.stop()
