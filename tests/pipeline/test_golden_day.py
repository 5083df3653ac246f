"""A day from publishing to the audit: clean as it was, and every planted breach is found.

Here a part of it; the whole day of 100,000 events is `penstock pipeline golden-day`.
"""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.history.audit.findings import checkpointed
from penstock.history.audit.golden_day import PLANTED, GoldenDay, rehearse
from penstock.spark.database import SparkDatabase

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

EVENTS = 4_000


def test_a_golden_day_is_clean_and_each_planted_breach_is_found(spark: SparkSession, tmp_path: Path) -> None:
    database = SparkDatabase(f"sqlite://{tmp_path}/jobs.db")
    day = GoldenDay(from_ms=1_790_000_000_000, events=EVENTS, keys=100)
    rehearsed = rehearse(spark, database, str(tmp_path / "checkpoint"), day)
    assert rehearsed.day.findings == []
    assert rehearsed.day.is_clean
    # Three of four events are orders, half create one, all are counted, half are European orders.
    jobs = EVENTS * 3 // 4 + EVENTS // 2 + EVENTS + EVENTS // 2
    counts = rehearsed.day.counts
    states = ("PENDING", "COMPLETED", "ERROR")
    assert sum(counts.get(state, 0) for state in states) == jobs
    assert counts["COMPLETED"] == counts["DELIVERED"] > jobs * 0.9
    assert counts["FAILED"] > 0
    assert dict(rehearsed.broken.totals) == PLANTED
    # Behind a refused order all later ones of its key wait for `billing`; nothing of `counting` waits.
    late = {each.subscription: each for each in rehearsed.day.lateness}
    assert set(late) == {"billing", "search", "counting", "europe"}
    assert sum(each.delivered for each in late.values()) == counts["COMPLETED"]
    assert sum(each.waiting for each in late.values()) == counts.get("PENDING", 0)
    assert late["counting"].waiting == 0
    assert late["counting"].oldest_waiting_ms is None
    # It is delivered 20 to 264 ms after its publication, unless it fails at first.
    assert 20 <= (late["counting"].p50_ms or 0) <= 264
    assert (late["counting"].p99_ms or 0) > 60_000


def test_a_checkpoint_directory_makes_an_audit_reliable(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(10)
    assert not is_in_files(checkpointed(frame))
    spark.sparkContext.setCheckpointDir(str(tmp_path))
    try:
        assert is_in_files(checkpointed(frame))
    finally:
        # Python has no way to take it back.
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        getattr(spark.sparkContext._jsc.sc(), "checkpointDir_$eq")(jvm.scala.Option.empty())


def is_in_files(frame: DataFrame) -> bool:
    """Whether its rows are read from a checkpoint in files rather than from executors."""
    lineage = frame._jdf.queryExecution().toRdd().toDebugString()
    return "ReliableCheckpointRDD" in str(lineage)
