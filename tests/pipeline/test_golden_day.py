"""A day from publishing to the audit: clean as it was, and every planted breach is found.

Here a part of it; the whole day of 100,000 events is `penstock pipeline golden-day`.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

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
