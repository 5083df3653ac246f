"""Python workers of Spark: starts them before the first batch, and keeps their long-lived objects out of the GC."""

import gc
import logging
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

# The modules of the streaming jobs; importing them takes most of a worker's start.
_IMPORTED = (
    "penstock.events.fan_out.spark_task",
    "penstock.events.dispatch.spark.task",
    "penstock.spark.sources.table_source",
)

log = logging.getLogger(__name__)


def start_workers(spark: "SparkSession") -> None:
    """Start as many workers as run at the same time, in the background.

    Spark starts the Python processes of a streaming query one after another. The workers come last; they are started
    here at once, on the core that is idle meanwhile.
    """
    Thread(target=_start, args=(spark,), name="penstock-first-workers", daemon=True).start()


def _start(spark: "SparkSession") -> None:
    try:
        parallel = spark.sparkContext.defaultParallelism
        # Counted and not written, because finding a format takes time too.
        spark.range(0, parallel, 1, parallel).mapInArrow(_import_all, "id long").count()
    except Exception as error:
        log.debug("workers could not be started in advance: %s", error)


def _import_all(batches: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    for name in _IMPORTED:
        import_module(name)
    yield from batches


@cache
def freeze_long_lived_objects(work: str) -> None:
    """Exclude what a kind of task has imported from garbage collection; only the first call has an effect.

    After each task, a worker collects garbage and visits all it has ever imported: 60 ms, more than a small task takes.
    """
    # Garbage that is frozen would never be collected.
    gc.collect()
    gc.freeze()
