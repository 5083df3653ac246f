"""The numbers of a report are those of a plain Python model, from the lake and from the database alike."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock.domain.message import partition_of
from penstock.history.errors import LakeEmpty
from penstock.history.lake.facts import FACTS
from penstock.history.lake.facts_job import FactsBatch
from penstock.history.lake.lake import Lake
from penstock.history.report.figures import MOST, Figures, collect_figures
from penstock.history.report.period import day_period, facts_of_database, facts_of_lake
from penstock.spark.database import SparkDatabase
from penstock.spark.tables import Tables
from tests.rigs.facts import NOW_MS, FactsRig, attempt

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

DAY = day_period("2025-11-01")
FAILURES = ("FAILED", "REFUSED")

facts = st.lists(
    st.fixed_dictionaries(
        {
            "job_id": st.sampled_from(["j1", "j2", "j3", "ü"]),
            "number": st.integers(1, 3),
            "outcome": st.sampled_from(["DELIVERED", "FAILED", "REFUSED", "DEFERRED"]),
            "at_ms": st.integers(DAY.since_ms, DAY.until_ms - 1),
            "duration_ms": st.integers(0, 100_000),
            "was_sent": st.booleans(),
            "reason": st.none() | st.sampled_from(["answered 503", "<b>", ""]),
            "waited_ms": st.none() | st.integers(0, 10**12),
            "group_key": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
            "subscription_id": st.none() | st.sampled_from(["s1", "s2"]),
            "type": st.sampled_from(["orders:created", "carts:left"]),
            "endpoint": st.none() | st.sampled_from(["https://a.example", "https://b.example/<x>"]),
            "repaired": st.booleans(),
        }
    ),
    min_size=20,
    max_size=80,
)


def percentile(values: list[int], share: float) -> int:
    """The smallest value that so large a share does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-round(share * 100 * len(ordered)) // 100) - 1)]


def check(found: Figures, rows: list[dict[str, Any]], partitions: int) -> None:
    """Compare a report with the facts it was made of."""
    totals = found.totals
    outcomes = Counter(row["outcome"] for row in rows)
    waits = [row["waited_ms"] for row in rows if row["waited_ms"] is not None]
    groups = Counter(row["group_key"] for row in rows if row["group_key"] is not None)
    assert totals.attempts == len(rows)
    assert (totals.delivered, totals.failed) == (outcomes["DELIVERED"], outcomes["FAILED"])
    assert (totals.refused, totals.deferred) == (outcomes["REFUSED"], outcomes["DEFERRED"])
    assert totals.jobs == len({row["job_id"] for row in rows})
    assert totals.groups == len(groups)
    assert totals.wait_longest_ms == max(waits, default=None)
    assert totals.wait_mean_ms == (pytest.approx(sum(waits) / len(waits)) if waits else None)
    sent_ms = sorted(row["duration_ms"] for row in rows if row["was_sent"])
    assert (totals.p50_ms, totals.p99_ms) == (
        (percentile(sent_ms, 0.5), percentile(sent_ms, 0.99)) if sent_ms else (None, None)
    )

    assert (totals.wait_p50_ms, totals.wait_p99_ms) == (
        (percentile(waits, 0.5), percentile(waits, 0.99)) if waits else (None, None)
    )
    by_subscription = Counter((row["subscription_id"], row["type"]) for row in rows)
    assert {(each.subscription_id, each.event_type): each.attempts for each in found.subscriptions} == by_subscription
    assert {each.subscription for each in found.subscriptions if each.subscription_id == "s1"} <= {"billing"}
    assert {each.subscription for each in found.subscriptions if each.subscription_id == "s2"} <= {"s2"}

    ranked = sorted(groups.items(), key=lambda entry: (-entry[1], entry[0].encode()))[:MOST]
    assert [(group.group_key, group.attempts) for group in found.groups] == ranked
    loads: Counter[int] = Counter()
    for group, attempts in groups.items():
        # The partition of an empty group is the first by rule, not by its hash; no job has one.
        loads[partition_of(group, partitions) if group else 2166136261 % partitions] += attempts
    assert [load.attempts for load in found.partitions] == [loads[number] for number in range(partitions) if groups]

    reasons = Counter((row["reason"], row["outcome"]) for row in rows if row["reason"] is not None)
    assert {(reason.reason, reason.outcome): reason.attempts for reason in found.reasons} == reasons
    durations = defaultdict(list)
    for row in rows:
        if row["was_sent"] and row["endpoint"] is not None:
            durations[row["endpoint"]].append(row["duration_ms"])
    assert {end.endpoint: (end.p50_ms, end.p95_ms, end.p99_ms) for end in found.endpoints} == {
        endpoint: tuple(percentile(values, share) for share in (0.5, 0.95, 0.99))
        for endpoint, values in durations.items()
    }
    assert [end.p99_ms for end in found.endpoints] == sorted((end.p99_ms for end in found.endpoints), reverse=True)

    steps = {step.step_ms: step for step in found.steps}
    assert list(steps) == DAY.steps
    assert sum(step.first for step in found.steps) == sum(row["number"] == 1 for row in rows)
    for step_ms, step in steps.items():
        inside = [row for row in rows if step_ms <= row["at_ms"] < step_ms + DAY.step_ms]
        assert step.retries == sum(row["number"] > 1 for row in inside)
        assert step.failed == sum(row["outcome"] in FAILURES for row in inside)
        end_ms = step_ms + DAY.step_ms
        first = [row for row in rows if row["number"] == 1 and row["waited_ms"] is not None and row["at_ms"] >= end_ms]
        assert step.waiting == sum(row["at_ms"] - row["waited_ms"] < end_ms for row in first)
        cells = [cell for cell in found.cells if cell.step_ms == step_ms]
        assert sum(cell.attempts for cell in cells) == sum(row["was_sent"] for row in inside)


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rows=facts)
def test_the_numbers_are_those_of_a_plain_model(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    frame = spark.createDataFrame([tuple(row.get(name) for name in FACTS.names) for row in rows], FACTS)

    found = collect_figures(frame, DAY, "a test", partitions=4, names={"s1": "billing"})

    check(found, rows, 4)


def test_lake_and_database_give_the_same_report(spark: SparkSession, tmp_path: Path) -> None:
    rig = FactsRig(SparkDatabase(f"sqlite://{tmp_path / 'jobs.db'}"))
    ids = rig.make_jobs(12)
    rig.add_attempts(
        [
            *(attempt(job, at_ms=NOW_MS - 40_000_000, outcome="FAILED", error="answered 503") for job in ids[::4]),
            *(attempt(job, 2, duration_ms=900) for job in ids),
            attempt("nobody", at_ms=NOW_MS + 5),
            attempt("j00000", 5, at_ms=NOW_MS + 90_000_000),
            attempt("j00001", 6, outcome="damaged"),
        ]
    )
    lake, tables = Lake(spark, str(tmp_path / "lake")), Tables(spark, rig.database)
    with pytest.raises(LakeEmpty, match="--from-database"):
        facts_of_lake(lake, DAY)
    FactsBatch(rig.database, lake, rig.clock).add(tables.attempts().drop("response"))

    by_lake = collect_figures(facts_of_lake(lake, DAY), DAY, "here")
    by_database = collect_figures(facts_of_database(tables, DAY), DAY, "here")

    assert by_lake == by_database
    assert by_lake.totals.attempts == 16
    assert [reason.reason for reason in by_lake.reasons] == ["answered 503"]
