"""Planned jobs into the database, from the tasks that planned them.

Each transaction has all jobs of its events, and makes them only for events that still wait for theirs: what Spark does
a second time (a task, a micro-batch) finds them done and makes none twice.
"""

from collections.abc import Iterator

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from penstock.domain.job import NewJob
from penstock.domain.pointer import DispatchMode
from penstock.pipeline.database import Database
from penstock.pipeline.fan_out.catalog import packed
from penstock.pipeline.fan_out.opened import OpenedRepository, opened_here
from penstock.pipeline.fan_out.ordering import in_order
from penstock.pipeline.fan_out.planning import Planned, planner_of
from penstock.pipeline.lasting_memory import spare_collections
from penstock.pipeline.sources.set_aside import SetAside, set_aside

# Enough that a commit costs each job little, few enough that lanes are not held for long.
_MOST_JOBS = 4_000

KEPT = StructType([StructField(name, LongType(), nullable=False) for name in ("events", "jobs", "set_aside")])
"""What a task did: events that waited no more, jobs made for them, damaged events set aside."""


def keep_jobs(events: DataFrame, database: Database, *, sort: bool = False) -> DataFrame:
    """Fan events out and keep the jobs, in the one action that is to be run on the answer: a row of `KEPT` per task.

    The subscriptions are those of the moment at which a task begins. `sort` if the events are not in order.
    """

    def keep(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        jobs = opened_here(database)
        planner = planner_of(packed(jobs.ask(lambda repository: repository.list_subscriptions())))
        done = [0, 0, 0]
        for batch in in_order(batches) if sort else batches:
            for planned in planner.plan(batch, _MOST_JOBS):
                done = [sum(pair) for pair in zip(done, _kept(planned, jobs, database), strict=True)]
        yield pyarrow.RecordBatch.from_pylist([dict(zip(KEPT.names, done, strict=True))], to_arrow_schema(KEPT))
        spare_collections("fan-out")

    return events.mapInArrow(keep, KEPT)


def _kept(planned: Planned, jobs: OpenedRepository, database: Database) -> tuple[int, int, int]:
    damaged = [SetAside("events", each.event_id or "", each.reason) for each in planned.set_aside]
    # Before they stop waiting: whoever looks for them finds them in one of the two.
    set_aside(database, damaged)
    event_ids = [*planned.event_ids.to_pylist(), *(each.row_id for each in damaged)]
    new = new_jobs(planned.jobs)
    waited = set(jobs.ask(lambda repository: repository.fan_out(event_ids, new, jobs.clock.now_ms())))
    return len(waited), sum(job.event_id in waited for job in new), len(damaged)


def new_jobs(planned: pyarrow.RecordBatch) -> list[NewJob]:
    """Rows of PLANNED_JOBS as the repository takes them."""
    columns = [planned.column(name).to_pylist() for name in _COLUMNS]
    return [
        NewJob(**dict(zip(_FIELDS, row, strict=True)), mode=_MODES[mode]) for *row, mode in zip(*columns, strict=True)
    ]


_COLUMNS = (
    "id", "tenant", "type", "event_id", "subscription_id", "group_name", "target", "pool", "content_type",
    "created_at_ms", "mode",
)  # fmt: skip
_FIELDS = tuple("group" if name == "group_name" else name for name in _COLUMNS if name != "mode")
_MODES = {mode.value: mode for mode in DispatchMode}
