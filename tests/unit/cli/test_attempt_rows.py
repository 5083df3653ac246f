"""How `penstock jobs show` prints deliveries: an endpoint that was down all night does not fill the screen."""

from datetime import UTC, datetime, timedelta

from penstock.cli.events.jobs import attempt_rows, waits_for
from penstock.client.types import AttemptView
from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import AttemptOutcome
from penstock.events.api.jobs.types import job_view
from tests.rigs.made_jobs import dispatch_job

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)


def attempt(number: int, outcome: AttemptOutcome, error: str | None = None) -> AttemptView:
    return AttemptView(number, outcome, BEGAN + timedelta(minutes=number), 5, None, None, error)


def test_deferrals_in_a_row_for_one_reason_share_a_row_and_failures_do_not() -> None:
    failed, deferred = AttemptOutcome.FAILED, AttemptOutcome.DEFERRED
    attempts = [
        attempt(1, failed, "answered 503"),
        attempt(2, failed, "answered 503"),
        *[attempt(number, deferred, "its breaker is open") for number in range(3, 100)],
        attempt(100, deferred, "answered 429"),
    ]
    rows = [(row[0], row[1], row[-1]) for row in attempt_rows(attempts)]
    assert rows == [
        ("1", "FAILED", "answered 503"),
        ("2", "FAILED", "answered 503"),
        ("3–99", "DEFERRED", "its breaker is open (97 times since 2030-01-01T00:03:00.000Z)"),
        ("100", "DEFERRED", "answered 429"),
    ]


def test_a_queued_job_waits_for_the_router_and_a_finished_one_for_nothing() -> None:
    waits = [
        waits_for(job_view(dispatch_job(status=status)), None) for status in (JobStatus.QUEUED, JobStatus.COMPLETED)
    ]
    assert waits == ["its turn in the router", ""]
