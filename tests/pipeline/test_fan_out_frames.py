"""Fan-out as DataFrames: equal to the inline engine on many made-up worlds, asked about in one go."""

from collections import defaultdict
from collections.abc import Iterator

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.domain.event import StoredEvent
from penstock.domain.order import group_key
from penstock.domain.subscription import Subscription
from penstock.events.fan_out.columns import EVENT_COLUMNS, PLANNED_JOBS
from penstock.events.fan_out.rule import FanOut
from penstock.events.fan_out.spark_plan import DataOf, by_group, in_order, no_data, packed, planner_of
from tests.pipeline.fan_out_worlds import data_of, events, frame_of, row_of, subscriptions
from tests.rigs.search import examples

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

COLUMNS = (
    "id", "tenant", "type", "event_id", "subscription_id", "group_name", "group_key", "mode", "target", "pool",
    "content_type", "created_at_ms",
)  # fmt: skip


def planned_jobs(events: DataFrame, catalog: bytes, data_of: DataOf) -> DataFrame:
    """Plan in Spark's workers, from the batches that Spark makes."""

    def plan(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for planned in planner_of(catalog).plan(batch, 1000, data_of):
                yield planned.jobs

    return events.select(*EVENT_COLUMNS).mapInArrow(plan, PLANNED_JOBS)


def made_up_worlds() -> tuple[list[Subscription], list[StoredEvent]]:
    """Gathered from Hypothesis first: a Spark job for each would take hours."""
    wanting: list[Subscription] = []
    told: list[StoredEvent] = []

    @settings(max_examples=examples(100), database=None)
    @given(st.lists(subscriptions(), max_size=6), st.lists(events(), max_size=10))
    def gather(some: list[Subscription], more: list[StoredEvent]) -> None:
        wanting.extend(some)
        told.extend(more)

    gather()
    return wanting, told


def test_spark_plans_what_the_inline_engine_makes(spark: SparkSession) -> None:
    wanting, told = made_up_worlds()
    fan_out = FanOut(wanting)
    expected = [
        (
            job.id, job.tenant, job.type, job.event_id, job.subscription_id, job.group, job.group_key, job.mode.value,
            job.target, job.pool, job.content_type, job.created_at_ms,
        )
        for event in told
        for job in fan_out.jobs(event)
    ]  # fmt: skip

    frame = planned_jobs(frame_of(spark, map(row_of, told)).repartition(5), packed(wanting), data_of(told))

    found = [tuple(row[name] for name in COLUMNS) for row in frame.collect()]
    assert len(expected) > 1000
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_a_batch_of_several_tasks_is_divided_by_groups_and_in_order(spark: SparkSession) -> None:
    groups = [None, "", "default", "a", "b", "c", "\N{SNOWMAN}"]
    rows = [(f"E{number:04}", "", groups[number % 7], 1000 - number // 10) for number in range(1000)]
    events = spark.createDataFrame(rows, "id string, tenant string, group_name string, position long").repartition(4)

    divided = by_group(events, 3).mapInArrow(in_order, events.schema)
    found = divided.withColumn("task", f.spark_partition_id()).collect()

    places = defaultdict(list)
    for row in found:
        places[group_key("", row.group_name)].append((row.task, row.position, row.id))
    assert all(len({task for task, *_ in met}) == 1 for met in places.values())
    assert all(met == sorted(met) for met in places.values())
    assert len(found) == 1000
    assert len({row.task for row in found}) > 1


def test_nobody_who_wants_anything_and_no_events_at_all(spark: SparkSession) -> None:
    event = StoredEvent(id="E1", source="shop", type="a", received_ms=1)

    assert planned_jobs(frame_of(spark, [row_of(event)]), packed([]), no_data).collect() == []
    assert planned_jobs(frame_of(spark, []), packed([]), no_data).collect() == []
