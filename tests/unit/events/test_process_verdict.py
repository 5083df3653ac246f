"""What follows for a job from how its delivery ended: every row of the table in process_verdict."""

import pytest

from penstock.domain.job import DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import (
    SUCCESS,
    AttemptOutcome,
    CircuitOpen,
    Deferred,
    EgressDenied,
    HttpError,
    MediationError,
    MediationOutcome,
    MediationResult,
    NetworkError,
    RateLimited,
    Timeout,
    error_text,
)
from penstock.domain.retry import DEFAULT_RETRY_SCHEDULE, RetrySchedule
from penstock.domain.subscription import Subscription
from penstock.events.process.verdict import Judgement, judge
from penstock.events.store.repository.deliveries import Done, TryLater
from tests.rigs.made_jobs import NOW_MS, dispatch_job

SUBSCRIPTION = Subscription(id="s", name="billing", pattern="**", target="https://a.example/")
FAILURE = MediationOutcome(MediationResult.ERROR_PROCESS, error=HttpError(500), status=500)
GONE = MediationOutcome(MediationResult.ERROR_PROCESS, error=HttpError(410), status=410)
COMPLETED, ERROR, EXPIRED = (Done(status) for status in (JobStatus.COMPLETED, JobStatus.ERROR, JobStatus.EXPIRED))


def judged(
    delivered: MediationOutcome,
    job: DispatchJob | None = None,
    subscription: Subscription | None = SUBSCRIPTION,
    jitter: float = 0.0,
) -> Judgement:
    return judge(job or dispatch_job(), subscription, delivered, NOW_MS, jitter)


def after_s(delay_s: float) -> TryLater:
    return TryLater(NOW_MS + round(delay_s * 1000))


def test_a_success_completes_the_job() -> None:
    assert judged(SUCCESS) == Judgement(AttemptOutcome.DELIVERED, COMPLETED)


@pytest.mark.parametrize("error", [HttpError(500), HttpError(404), HttpError(302), Timeout(3), NetworkError("broke")])
def test_a_failure_is_tried_again_by_the_schedule(error: MediationError) -> None:
    failure = MediationOutcome(MediationResult.ERROR_PROCESS, error=error)
    assert judged(failure) == Judgement(AttemptOutcome.FAILED, after_s(5))


@pytest.mark.parametrize(("spent", "delay_s"), list(enumerate(DEFAULT_RETRY_SCHEDULE.delays_s)))
def test_each_attempt_waits_longer_and_jitter_adds_up_to_a_fifth(spent: int, delay_s: float) -> None:
    job = dispatch_job(attempt_count=spent)
    assert judged(FAILURE, job).verdict == after_s(delay_s)
    assert judged(FAILURE, job, jitter=1.0).verdict == after_s(delay_s * 1.2)


def test_after_the_last_delay_the_job_is_in_error() -> None:
    job = dispatch_job(attempt_count=len(DEFAULT_RETRY_SCHEDULE.delays_s))
    assert judged(FAILURE, job) == Judgement(AttemptOutcome.FAILED, ERROR)


def test_a_subscription_has_a_schedule_of_its_own_and_a_job_without_one_the_default() -> None:
    hasty = Subscription(id="s", name="n", pattern="**", target="https://a.example/", retry=RetrySchedule((1,)))
    assert judged(FAILURE, subscription=hasty).verdict == after_s(1)
    assert judged(FAILURE, dispatch_job(attempt_count=1), hasty).verdict == ERROR
    assert judged(FAILURE, dispatch_job(attempt_count=1), None).verdict == after_s(30)


def test_a_retry_after_that_is_longer_than_the_schedule_is_waited_out() -> None:
    def unavailable(delay_s: int) -> MediationOutcome:
        return MediationOutcome(MediationResult.ERROR_PROCESS, delay_s, HttpError(503), 503)

    assert judged(unavailable(77)).verdict == after_s(77)
    assert judged(unavailable(1)).verdict == after_s(5)


@pytest.mark.parametrize("error", [Deferred(), RateLimited(), CircuitOpen("https://a.example/")])
def test_a_deferral_spends_nothing_however_often_it_comes(error: MediationError) -> None:
    deferral = MediationOutcome(MediationResult.ERROR_PROCESS, error=error)
    exhausted = dispatch_job(attempt_count=99)
    assert judged(deferral, exhausted) == Judgement(AttemptOutcome.DEFERRED, after_s(30))
    assert judged(deferral, exhausted, jitter=1.0).verdict == after_s(36)


def test_a_job_that_meets_an_open_breaker_is_due_when_it_half_opens() -> None:
    refused = MediationOutcome(MediationResult.ERROR_PROCESS, error=CircuitOpen("https://a.example/", 5))
    assert judged(refused, dispatch_job(attempt_count=99)) == Judgement(AttemptOutcome.DEFERRED, after_s(5))
    assert judged(refused, jitter=1.0).verdict == after_s(6)


def test_a_delay_that_the_endpoint_chose_is_kept_exactly() -> None:
    deferral = MediationOutcome(MediationResult.ERROR_PROCESS, 7, Deferred(), 200)
    assert judged(deferral, jitter=1.0).verdict == after_s(7)


def test_gone_pauses_the_subscription_and_keeps_the_job_even_after_its_last_attempt() -> None:
    job = dispatch_job(attempt_count=99)
    assert judged(GONE, job) == Judgement(AttemptOutcome.REFUSED, TryLater(NOW_MS), pauses=True)


def test_gone_without_a_subscription_is_the_end() -> None:
    assert judged(GONE, subscription=None) == Judgement(AttemptOutcome.REFUSED, ERROR)


@pytest.mark.parametrize("error", [HttpError(501), EgressDenied("no URL")])
def test_what_can_never_be_delivered_is_in_error_at_once(error: MediationError) -> None:
    refused = MediationOutcome(MediationResult.ERROR_CONFIG, error=error)
    assert judged(refused) == Judgement(AttemptOutcome.REFUSED, ERROR)


@pytest.mark.parametrize(
    "delivered",
    [FAILURE, MediationOutcome(MediationResult.ERROR_PROCESS, 5, Deferred(), 200)],
    ids=["failed", "deferred"],
)
def test_a_job_that_would_be_tried_again_too_late_expires(delivered: MediationOutcome) -> None:
    assert judged(delivered, dispatch_job(expires_at_ms=NOW_MS + 5000)).verdict == EXPIRED
    assert judged(delivered, dispatch_job(expires_at_ms=NOW_MS + 5001)).verdict == after_s(5)


def test_a_job_that_was_delivered_in_its_last_moment_is_completed() -> None:
    assert judged(SUCCESS, dispatch_job(expires_at_ms=NOW_MS)).verdict == COMPLETED


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, None),
        (Timeout(2.5), "no answer within 2.5 s"),
        (HttpError(404), "answered 404"),
        (RateLimited(3), "answered 429: too many requests"),
        (Deferred(), "answered ack: false"),
        (NetworkError("it broke"), "it broke"),
        (EgressDenied("loopback"), "loopback"),
    ],
)
def test_an_error_is_told_in_a_few_words(error: MediationError | None, words: str | None) -> None:
    assert error_text(error) == words


def test_an_open_breaker_names_the_endpoint() -> None:
    assert "https://a.example/hook" in (error_text(CircuitOpen("https://a.example/hook")) or "")
