"""How `penstock jobs show` prints deliveries: an endpoint that was down all night does not fill the screen."""

from datetime import UTC, datetime, timedelta

from penstock.cli.events.jobs import attempt_rows
from penstock.client.types import AttemptView
from penstock.domain.outcome import AttemptOutcome

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
