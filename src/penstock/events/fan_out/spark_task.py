"""Plans and stores the jobs of events: in Spark's tasks, and in the driver for small batches.

A transaction stores all jobs of its events, and only for events that still wait for theirs: whoever repeats a batch, or
does the same one at the same time, creates none twice.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from penstock.domain.job import NewJob
from penstock.domain.pointer import DispatchMode
from penstock.edge.clock import SystemClock
from penstock.events.fan_out.spark_plan import Planned, Planner, in_order, packed, planner_of
from penstock.events.store import JobRepository
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.valid_rows import SetAside, set_aside
from penstock.spark.workers import freeze_long_lived_objects

Result = TypeVar("Result")
# Large enough to share the cost of a commit, small enough to release lanes soon.
_MOST_JOBS = 20_000


class KeptCounts(NamedTuple):
    """Events that no longer wait, jobs created for them, and damaged events set aside."""

    events: int = 0
    jobs: int = 0
    set_aside: int = 0


KEPT = StructType([StructField(name, LongType(), nullable=False) for name in KeptCounts._fields])
"""The `KeptCounts` of a task."""

_COLUMNS = (
    "id", "tenant", "type", "event_id", "subscription_id", "group_name", "target", "pool", "content_type",
    "created_at_ms", "high_priority", "mode",
)  # fmt: skip

_FIELDS = tuple("group" if name == "group_name" else name for name in _COLUMNS if name != "mode")
_MODES = {mode.value: mode for mode in DispatchMode}


def keep_jobs(events: DataFrame, database: SparkDatabase, *, sort: bool = False) -> DataFrame:
    """Fan out events and store their jobs in the action that is run on the result: a row of `KEPT` per task.

    `sort` if the events are not in order.
    """

    def keep(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        jobs = process_repository(database)
        done = kept(in_order(batches) if sort else batches, current_planner(jobs), jobs, database)
        yield pyarrow.RecordBatch.from_pylist([done._asdict()], to_arrow_schema(KEPT))
        freeze_long_lived_objects("fan-out")

    return events.mapInArrow(keep, KEPT)


def current_planner(jobs: "OpenedRepository") -> Planner:
    """Return the planner of the subscriptions of this moment."""
    return planner_of(packed(jobs.ask(lambda repository: repository.list_subscriptions())))


def kept(
    batches: Iterable[pyarrow.RecordBatch], planner: Planner, jobs: "OpenedRepository", database: SparkDatabase
) -> KeptCounts:
    """Store the jobs of events that come in order."""
    done = KeptCounts()
    for batch in batches:
        for planned in planner.plan(batch, _MOST_JOBS, jobs.data_of):
            done = KeptCounts(*map(sum, zip(done, _store(planned, jobs, database), strict=True)))
    return done


def _store(planned: Planned, jobs: "OpenedRepository", database: SparkDatabase) -> KeptCounts:
    damaged = [SetAside("events", each.event_id or "", each.reason) for each in planned.set_aside]
    # Before they stop waiting, so that each event is always either waiting or set aside.
    set_aside(database, damaged)
    event_ids = [*planned.event_ids.to_pylist(), *(each.row_id for each in damaged)]
    new = new_jobs(planned.jobs)
    waited = set(jobs.ask(lambda repository: repository.fan_out(event_ids, new, jobs.clock.now_ms())))
    return KeptCounts(len(waited), sum(job.event_id in waited for job in new), len(damaged))


def new_jobs(planned: pyarrow.RecordBatch) -> list[NewJob]:
    """Return rows of PLANNED_JOBS as the repository takes them."""
    columns = [planned.column(name).to_pylist() for name in _COLUMNS]
    return [
        NewJob(**dict(zip(_FIELDS, row, strict=True)), mode=_MODES[mode]) for *row, mode in zip(*columns, strict=True)
    ]


class OpenedRepository:
    """An open repository for threads without an event loop; it keeps its connections between micro-batches."""

    def __init__(self, database: SparkDatabase) -> None:
        self._runner = asyncio.Runner()
        self._one_at_a_time = Lock()
        self._repository = database.repository()
        self.clock = SystemClock()
        self._runner.run(self._repository.open(self.clock.now_ms()))

    def ask(self, query: Callable[[JobRepository], Coroutine[Any, Any, Result]]) -> Result:
        """Run a query and wait for its result."""
        with self._one_at_a_time:
            return self._runner.run(query(self._repository))

    def data_of(self, event_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the data of events by their ids."""
        return self.ask(lambda repository: repository.data_of_events(event_ids))

    def close(self) -> None:
        """Close the repository."""
        with self._one_at_a_time:
            self._runner.run(self._repository.close())
            self._runner.close()


@lru_cache(maxsize=4)
def process_repository(database: SparkDatabase) -> OpenedRepository:
    """Return the repository of this process, which Spark reuses for many tasks."""
    return OpenedRepository(database)
