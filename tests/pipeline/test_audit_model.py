"""Spark's audit finds what a plain Python one finds that looks at every pair, and nothing in lawful histories."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock.history.audit.audit import audit_frame
from penstock.history.audit.window import FINISH_LAG_MS, AuditWindow
from tests.pipeline.audit_frames import found_in, frames, no_events
from tests.pipeline.audit_histories import T0_MS, History, lawful, wild
from tests.pipeline.audit_model import model_findings

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

HISTORIES = 400
WINDOWS = (
    AuditWindow(until_ms=T0_MS + 1000),
    AuditWindow(until_ms=T0_MS + 1000, tolerance_ms=3),
    AuditWindow(until_ms=T0_MS + 20, since_ms=T0_MS + 6),
    AuditWindow(until_ms=T0_MS + 30, since_ms=T0_MS - FINISH_LAG_MS + 10, tolerance_ms=1),
)


def _rows(histories: list[History]) -> History:
    return History(
        [job for history in histories for job in history.jobs],
        [each for history in histories for each in history.attempts],
    )


# Each example is hundreds of histories, and an audit of its own.
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 1 << 32), window=st.sampled_from(WINDOWS))
def test_spark_finds_what_the_model_finds(spark: SparkSession, seed: int, window: AuditWindow) -> None:
    random = Random(seed)
    histories = [wild(random, f"h{number:03}") for number in range(HISTORIES)]
    jobs, attempts = frames(spark, histories)
    whole = _rows(histories)
    expected = model_findings(whole.jobs, whole.attempts, window)
    screened = found_in(audit_frame(*no_events(spark), jobs, attempts, window).findings)
    assert screened == expected


def test_lawful_histories_are_clean(spark: SparkSession) -> None:
    random = Random(11)
    histories = [lawful(random, f"h{number:03}") for number in range(HISTORIES)]
    jobs, attempts = frames(spark, histories)
    audited = audit_frame(*no_events(spark), jobs, attempts, AuditWindow(until_ms=T0_MS + 10_000))
    assert found_in(audited.findings) == []
    whole = _rows(histories)
    assert sum(audited.counts[status] for status in {str(job.status) for job in whole.jobs}) == len(whole.jobs)
    assert audited.counts["DELIVERED"] == sum(each.outcome == "DELIVERED" for each in whole.attempts)
    # Crashes of which nothing was written down: what is being delivered right now is none of them.
    begun = sum(job.delivery_count - (job.status == "PROCESSING") for job in whole.jobs)
    assert audited.counts["unrecorded"] == begun - len(whole.attempts) > 0
