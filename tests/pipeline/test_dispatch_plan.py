"""The plan on DataFrames is that of `core.plan`, whatever the jobs and the circumstances."""

from collections import defaultdict
from itertools import count

import pyarrow
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.domain.order import plan
from penstock.domain.partition import fnv1a_32, partition_of
from penstock.events.dispatch.spark_frame_plan import (
    CircumstanceFrames,
    may_go,
    plan_or_rest,
    with_circumstances,
    with_share,
)
from penstock.events.dispatch.spark_frame_plan import plan as spark_plan
from penstock.events.dispatch.spark_plan import BLOCKER, LANE_JOBS, group_hash, hashes_of
from tests.plan_worlds import NOW_MS, WORLDS, World

pytestmark = [pytest.mark.xdist_group("spark")]

TASKS = 2
PENDING = (
    "world string, id string, group_key string, mode string, sequence long, created_at_ms long, due_at_ms long, "
    "expires_at_ms long, subscription_id string, delivery_count long"
)


def frames(spark: SparkSession, worlds: list[World]) -> tuple[DataFrame, CircumstanceFrames]:
    """All worlds in one frame; the keys of groups and subscriptions tell them apart."""
    jobs, errors, in_flight, paused, turns = [], [], [], [], []
    for number, world in enumerate(worlds):
        around, key = world.around, f"{number:03}|{{}}".format
        for job in world.jobs:
            subscription = None if job.subscription_id is None else key(job.subscription_id)
            place = (job.sequence, job.created_at_ms, job.due_at_ms, job.expires_at_ms)
            jobs.append((str(number), job.id, key(job.group_key), job.mode.value, *place, subscription, job.was_tried))
        errors += [(key(group), *position) for group, position in around.errors.items()]
        in_flight += [(key(group),) for group in around.in_flight]
        paused += [(key(subscription),) for subscription in around.paused]
        turns += [(key(lane.group_key), lane.ordered, turn) for lane, turn in around.turns.items()]
    frame = spark.createDataFrame([(*job[:9], int(job[9])) for job in jobs], PENDING)
    around_frames = CircumstanceFrames(
        errors=spark.createDataFrame(errors, "group_key string, sequence long, created_at_ms long, id string"),
        in_flight=spark.createDataFrame(in_flight, "group_key string"),
        paused=spark.createDataFrame(paused, "id string"),
        turns=spark.createDataFrame(turns, "group_key string, ordered boolean, turn long"),
    )
    return frame, around_frames


def planned_by_spark(spark: SparkSession, worlds: list[World], most: int, per_group: int) -> dict[int, list[str]]:
    """Per world the ids in the order of the plan."""
    jobs, around = frames(spark, worlds)
    told = with_circumstances(jobs, around, NOW_MS)
    shared = with_share(told, may_go(NOW_MS), most=most, per_group=per_group, within=["world"])
    found = defaultdict(list)
    for row in spark_plan(shared, NOW_MS, TASKS).select("world", "rank", "place", "id", "task", "group_key").collect():
        assert row["task"] == partition_of(row["group_key"], TASKS)
        found[int(row["world"])].append((row["rank"], row["place"], row["id"]))
    return {number: [job_id for *_, job_id in sorted(rows)] for number, rows in found.items()}


@settings(max_examples=2, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(WORLDS, min_size=60, max_size=90), st.integers(1, 12), st.integers(1, 6))
def test_the_plan_of_a_frame_is_that_of_the_rules(
    spark: SparkSession, worlds: list[World], most: int, per_group: int
) -> None:
    found = planned_by_spark(spark, worlds, most, per_group)
    for number, world in enumerate(worlds):
        wanted = plan(world.jobs, world.around, NOW_MS, most=most, per_group=per_group)
        assert found.get(number, []) == [job.id for job in wanted], world


def lane_rows(spark: SparkSession, *rows: dict[str, object]) -> DataFrame:
    ids = count()
    usual: dict[str, object] = {
        "group_key": "s:g", "ordered": True, "turn": 1, "paused": False, "in_flight": False, "mode": "BLOCK_ON_ERROR",
        "sequence": 99, "created_at_ms": 0, "due_at_ms": 0, "expires_at_ms": None, "pool": "P", "publish_round": 0,
        "updated_at_ms": 0, **dict.fromkeys(BLOCKER),
    }  # fmt: skip
    full = [{**usual, "id": f"job {next(ids):02}", **row} for row in rows]
    values = [
        tuple(fnv1a_32(str(row["group_key"])) if name == "group_hash" else row[name] for name in LANE_JOBS.names)
        for row in full
    ]
    return spark.createDataFrame(values, LANE_JOBS).withColumn("share", sf.lit(2))


def test_a_lane_without_anything_to_give_is_told_by_one_row_that_may_not_go(spark: SparkSession) -> None:
    more: dict[str, object] = {"group_key": "s:more"}
    rows = lane_rows(
        spark,
        {"group_key": "s:empty", "id": None, "mode": None, "sequence": None, "created_at_ms": None, "due_at_ms": None},
        *[{"group_key": "s:paused", "paused": True}] * 3,
        *[more] * 3,
        {"group_key": "s:part", "due_at_ms": 2000},
        {"group_key": "s:part"},
    )
    found = plan_or_rest(rows, NOW_MS, TASKS).select("group_key", "id", "rank", "may_go").collect()
    assert sorted(map(tuple, found)) == [
        ("s:empty", None, 1, False),
        ("s:more", "job 04", 1, True),
        ("s:more", "job 05", 2, True),
        ("s:part", "job 08", 1, True),
        ("s:paused", "job 01", 1, False),
    ]


def test_a_task_has_whole_groups_and_each_lane_together_in_order(spark: SparkSession) -> None:
    rows = [
        {"group_key": f"s:{number % 5}", "ordered": number % 2 == 0, "sequence": 9 - number % 7} for number in range(60)
    ]
    frame = plan_or_rest(lane_rows(spark, *rows).withColumn("share", sf.lit(100)), NOW_MS, 4)
    seen = frame.select("group_key", "ordered", "sequence", "created_at_ms", "id", "task", "rank")
    placed = seen.withColumn("partition", sf.spark_partition_id()).withColumn("row", sf.monotonically_increasing_id())
    tasks, lanes = defaultdict(set), defaultdict(list)
    for row in sorted(placed.collect(), key=lambda row: row["row"]):
        assert row["partition"] == row["task"] == partition_of(row["group_key"], 4)
        tasks[row["group_key"]].add(row["partition"])
        lanes[row["group_key"], row["ordered"]].append((row["row"], row["sequence"], row["id"], row["rank"]))
    assert all(len(partitions) == 1 for partitions in tasks.values())
    for found in lanes.values():
        first = found[0][0]
        assert [row for row, *_ in found] == list(range(first, first + len(found)))
        assert [rank for *_, rank in found] == list(range(1, len(found) + 1))
        assert [place[1:3] for place in found] == sorted(place[1:3] for place in found)


def test_one_shuffle_is_all_that_a_plan_takes(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    plan_or_rest(lane_rows(spark, {}, {}), NOW_MS, TASKS).explain()
    assert capsys.readouterr().out.count("Exchange") == 1
    plan_or_rest(lane_rows(spark, {}, {}), NOW_MS, 1).explain()
    assert capsys.readouterr().out.count("Exchange") == 0


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40), max_size=30))
def test_hashes_of_a_column_are_those_of_the_queue(texts: list[str]) -> None:
    column = pyarrow.array(texts, pyarrow.string())
    assert hashes_of(column).to_pylist() == [fnv1a_32(text) for text in texts]
    assert hashes_of(column[1:]).to_pylist() == [fnv1a_32(text) for text in texts[1:]]


def test_frames_without_a_hash_get_it(spark: SparkSession) -> None:
    texts = ["", "s:g", "s:ä", "s:" + "x" * 300, "s:g"]
    frame = spark.createDataFrame([(text,) for text in texts], "group_key string")
    found = frame.select(group_hash(sf.col("group_key")).alias("hash")).collect()
    assert sorted(row["hash"] for row in found) == sorted(map(fnv1a_32, texts))
