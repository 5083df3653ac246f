"""The rules of facts for DataFrames are those of the inline engine: equal on whatever rows there are."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.domain.outcome import AttemptOutcome
from penstock.events.statistics.facts import AttemptRow, JobOrigin, fact_of, flaw_of, latest_ms
from penstock.events.statistics.minutes import BEFORE_ALL, count, count_leaders
from penstock.history.lake.facts import ORIGIN, as_facts, with_flaws
from penstock.history.lake.tally import tally
from tests.rigs.facts import NOW_MS

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

# As nullable as a damaged database can be.
SCHEMA = StructType(
    [
        StructField("job_id", StringType()),
        StructField("number", LongType()),
        StructField("outcome", StringType()),
        StructField("at_ms", LongType()),
        StructField("duration_ms", LongType()),
        StructField("status_code", LongType()),
        StructField("error", StringType()),
        StructField("position", LongType()),
        *ORIGIN.fields,
    ]
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
longs = st.integers(-(2**63), 2**63 - 1)
moments = st.integers(NOW_MS - 180_000, NOW_MS) | st.sampled_from(
    [0, -1, 2**62, latest_ms(NOW_MS), latest_ms(NOW_MS) + 1]
)
targets = st.sampled_from(
    [
        "https://a.example/x?token=1",
        "https://user:secret@a.example:8443/x#y",
        "http://[::1]:80/p",
        "https://a.example",
        "HTTP://A.example/ü\n\U0001f600?",
        "https://a.example/" + "\U0001f600" * 300,
        "https://@/?@",
        "://x",
        "nonsense",
        "a?b#c",
        "x\0y",
        "",
    ]
)
attempts = st.builds(
    AttemptRow,
    job_id=st.none() | text,
    number=st.none() | st.integers(-1, 3),
    outcome=st.sampled_from([*AttemptOutcome, "DELIVERD", "", "delivered"]) | st.none(),
    at_ms=st.none() | moments,
    duration_ms=st.none() | st.integers(-5, 70_000) | longs,
    status_code=st.none() | st.sampled_from([200, 503]),
    error=st.none() | text,
)
usual_attempts = st.builds(
    AttemptRow,
    job_id=text,
    number=st.integers(1, 2),
    outcome=st.sampled_from(AttemptOutcome),
    at_ms=st.integers(NOW_MS - 180_000, NOW_MS),
    duration_ms=st.integers(0, 70_000),
    status_code=st.none() | st.sampled_from([200, 503]),
)
origins = st.none() | st.builds(
    JobOrigin,
    id=text,
    tenant=text,
    type=text,
    event_id=st.none() | text,
    subscription_id=st.none() | st.sampled_from(["s", "t", ""]),
    group_key=st.sampled_from(["s:a", "s:b", "ü" * 250]),
    pool=st.sampled_from(["p", "q", "", "p\0"]),
    target=targets,
    scheduled_for_ms=st.none() | moments,
    created_at_ms=moments | longs,
)
histories = st.lists(st.tuples(attempts | usual_attempts, origins), min_size=100, max_size=200)


def row(attempt: AttemptRow, job: JobOrigin | None) -> tuple[Any, ...]:
    own = [getattr(attempt, name) for name in SCHEMA.names if name not in ORIGIN.names]
    return (*own, *(None if job is None else getattr(job, name) for name in ORIGIN.names))


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(history=histories)
def test_both_engines_find_the_same_flaws_and_count_the_same(
    spark: SparkSession, history: list[tuple[AttemptRow, JobOrigin | None]]
) -> None:
    frame = with_flaws(spark.createDataFrame([row(*pair) for pair in history], SCHEMA), NOW_MS)
    sound = [(attempt, job) for attempt, job in history if flaw_of(attempt, NOW_MS) is None]
    facts = [fact_of(attempt, job) for attempt, job in sound]

    found = tally(as_facts(frame), BEFORE_ALL, 0)

    flaws = [flaw for attempt, _ in history if (flaw := flaw_of(attempt, NOW_MS)) is not None]
    assert sorted(flaw for _, flaw in found.flaws) == sorted(flaws)
    assert (found.facts, found.flawed) == (len(facts), len(flaws))
    assert sorted(found.minutes, key=repr) == sorted(count(facts), key=repr)
    assert found.leaders == count_leaders(facts)
    assert found.repaired == sum(fact.repaired for fact in facts)


def test_a_fact_tells_its_day_its_reason_and_no_secret(spark: SparkSession) -> None:
    job = JobOrigin(
        id="j", tenant="", type="t", event_id=None, subscription_id="s", group_key="s:g", pool="p",
        target="https://user:secret@a.example/x?token=secret", scheduled_for_ms=None, created_at_ms=NOW_MS - 500,
    )  # fmt: skip
    failed = AttemptRow(
        job_id="j", number=1, outcome="FAILED", at_ms=NOW_MS, duration_ms=5, status_code=503, error="x" * 5000
    )
    silent = AttemptRow(job_id="j", number=2, outcome="FAILED", at_ms=NOW_MS, duration_ms=5, status_code=503)

    first, second = (
        as_facts(with_flaws(spark.createDataFrame([row(failed, job), row(silent, job)], SCHEMA), NOW_MS))
        .orderBy("number")
        .collect()
    )

    assert (first["day"], first["waited_ms"], second["waited_ms"]) == ("2025-11-01", 500, None)
    assert first["reason"] == "x" * 200
    assert second["reason"] == "answered 503"
    assert first["endpoint"] == "https://a.example/x"
    assert "secret" not in str(first)
