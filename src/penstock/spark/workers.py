"""Python workers that are there before the first batch needs them.

Spark starts the Python processes of a streaming query one after another, each when the one before has done its part.
The workers, which come last, are started here at once, on the core that has nothing to do meanwhile.

What a Python worker of Spark's keeps for good is kept out of the garbage collector's way.

After each task a worker collects garbage, and looks at all it has ever imported: 60 ms of a core, more than a small
task takes.
"""

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

# What the streaming jobs do in a worker; what it takes to import them is most of a worker's start.
_USED = (
    "penstock.events.fan_out.spark",
    "penstock.events.dispatch.spark.task",
    "penstock.spark.sources.table_source",
)

log = logging.getLogger(__name__)


def start_workers(spark: "SparkSession") -> None:
    """Begin to start as many as run at the same time; nobody has to wait for it."""
    Thread(target=_start, args=(spark,), name="penstock-first-workers", daemon=True).start()


def _start(spark: "SparkSession") -> None:
    try:
        parallel = spark.sparkContext.defaultParallelism
        # Not written anywhere: to look for a format is one of the steps that this is not to wait for.
        spark.range(0, parallel, 1, parallel).mapInArrow(_import_all, "id long").count()
    except Exception as error:
        log.debug("no workers were started ahead: %s", error)


def _import_all(batches: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    for name in _USED:
        import_module(name)
    yield from batches


@cache
def spare_collections(work: str) -> None:
    """Called at the end of every task of a kind; the first time, when all it imports is there, it counts."""
    # What is garbage now would never be collected.
    gc.collect()
    gc.freeze()
