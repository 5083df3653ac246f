"""Which jobs a replay takes and in which order, beside the same rules in plain Python."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.domain.ids import COPY_JOINT, encode_tsid
from penstock.domain.job_state import JobStatus
from penstock.domain.message import fnv1a_32
from penstock.domain.replay import ReplaySelection
from penstock.history.replay.selection import COLUMNS, on_their_way, part_counts, planned, selected
from penstock.spark.schemas import JOBS

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

AS_OF_MS = 80
MOMENTS = st.integers(0, 100)
IDS = st.integers(1, 80).map(encode_tsid)
REPLAYS = st.sampled_from(["", f"{COPY_JOINT}{encode_tsid(900)}", f"{COPY_JOINT}{encode_tsid(901)}"])
ROWS = st.fixed_dictionaries(
    {
        "id": st.builds(lambda original, copy: original + copy, IDS, REPLAYS),
        "subscription_id": st.sampled_from(["s1", "s2", None]),
        "group_name": st.sampled_from(["a", "b", "default", "ключ", None]),
        "type": st.sampled_from(["orders:created", "orders:paid"]),
        "sequence": st.sampled_from([1, 99]),
        "status": st.sampled_from([str(status) for status in JobStatus]),
        "created_at_ms": MOMENTS,
        "finished_at_ms": st.none() | MOMENTS,
    }
)
TABLES = st.lists(ROWS, min_size=20, max_size=90, unique_by=lambda row: row["id"])
SELECTIONS = st.builds(
    ReplaySelection,
    from_ms=st.integers(0, 50),
    to_ms=st.none() | st.integers(51, 100),
    subscription_id=st.sampled_from([None, "s1", "gone"]),
    key=st.sampled_from([None, None, "a", "default", "ключ"]),
    failed_since_ms=st.none() | MOMENTS,
    status=st.sampled_from([None, None, *JobStatus]),
    type=st.sampled_from([None, None, "orders:created"]),
    group_key=st.sampled_from([None, None, "s1:a", "orders:created:default"]),
)


def group_key(row: dict[str, Any]) -> str:
    return f"{row['subscription_id'] or row['type']}:{row['group_name'] or 'default'}"


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    schema = type(JOBS)([JOBS[name] for name in COLUMNS])
    # Which jobs are taken does not depend on their mode.
    values = [
        tuple({**row, "mode": "BLOCK_ON_ERROR", "group_key": group_key(row)}[name] for name in COLUMNS) for row in rows
    ]
    return spark.createDataFrame(values, schema, verifySchema=False)


def fits(row: dict[str, Any], wanted: ReplaySelection) -> bool:
    return (
        (wanted.from_ms is None or row["created_at_ms"] >= wanted.from_ms)
        and (wanted.to_ms is None or row["created_at_ms"] < wanted.to_ms)
        and (wanted.subscription_id is None or row["subscription_id"] == wanted.subscription_id)
        and (wanted.key is None or (row["group_name"] or "default") == wanted.key)
        and (wanted.type is None or row["type"] == wanted.type)
        and (wanted.group_key is None or group_key(row) == wanted.group_key)
    )


def expected(rows: list[dict[str, Any]], wanted: ReplaySelection) -> set[str]:
    failed_only = wanted.failed_since_ms is not None
    statuses = {"ERROR", "EXPIRED"} | (set() if failed_only else {"COMPLETED"})
    statuses = statuses if wanted.status is None else statuses & {wanted.status}
    over = [
        row["id"]
        for row in rows
        if fits(row, wanted)
        and row["status"] in statuses
        and row["finished_at_ms"] is not None
        and (wanted.failed_since_ms or 0) <= row["finished_at_ms"] <= AS_OF_MS
    ]
    last = {job_id.partition(COPY_JOINT)[0]: job_id for job_id in sorted(over)}
    return set(last.values())


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=TABLES, wanted=SELECTIONS)
def test_the_selection_is_that_of_plain_python(
    spark: SparkSession, rows: list[dict[str, Any]], wanted: ReplaySelection
) -> None:
    jobs = frame(spark, rows)
    chosen = selected(lambda: jobs, wanted, AS_OF_MS).select("id", f.lit(True).alias("chosen"))
    found = chosen.union(on_their_way(jobs, wanted).select("id", f.lit(False))).collect()
    assert sorted(row["id"] for row in found if row["chosen"]) == sorted(expected(rows, wanted))
    unfinished = [row["id"] for row in rows if row["status"] in ("PENDING", "QUEUED", "PROCESSING")]
    fitting = {row["id"] for row in rows if fits(row, wanted)}
    assert sorted(row["id"] for row in found if not row["chosen"]) == sorted(fitting.intersection(unfinished))


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=TABLES, count=st.integers(1, 5))
def test_a_group_is_in_one_part_and_in_order(spark: SparkSession, rows: list[dict[str, Any]], count: int) -> None:
    jobs = frame(spark, rows).select("group_key", "sequence", "created_at_ms", "id")
    plan = planned(jobs, count).withColumn("task", f.spark_partition_id())
    by_id = {row["id"]: row for row in rows}
    # Rows of a task come in the order in which it has them.
    found = plan.collect()
    assert sorted(row["id"] for row in found) == sorted(by_id)
    for row in found:
        assert row["part"] == row["task"] == fnv1a_32(group_key(by_id[row["id"]])) % count
    for part in range(count):
        order = [
            (by_id[row["id"]]["sequence"], by_id[row["id"]]["created_at_ms"], row["id"])
            for row in found
            if row["task"] == part
        ]
        assert order == sorted(order)


def test_the_count_tells_jobs_and_groups_of_each_part(spark: SparkSession) -> None:
    rows = [
        {
            "id": f"j{number:02}",
            "subscription_id": "s",
            "group_name": f"g{number % 7}",
            "type": "orders:created",
            "sequence": 99,
            "status": "COMPLETED",
            "created_at_ms": number,
            "finished_at_ms": number,
        }
        for number in range(30)
    ]
    counts = part_counts(frame(spark, rows).select("group_key", "sequence", "created_at_ms", "id"), 3).collect()
    assert sum(row["jobs"] for row in counts) == 30
    assert sum(row["groups"] for row in counts) == 7
    assert {row["part"] for row in counts} <= {0, 1, 2}
