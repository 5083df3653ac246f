"""What happens to a job after a delivery: a decision as data, separate from carrying it out.

| the subscriber                       | attempt   | the job                                                         |
|--------------------------------------|-----------|-----------------------------------------------------------------|
| 2xx                                  | DELIVERED | COMPLETED                                                       |
| 2xx with `"ack": false`              | DEFERRED  | PENDING after `delaySeconds`, 30 s without; no attempt is spent |
| 429                                  | DEFERRED  | PENDING after Retry-After, 30 s without; no attempt is spent    |
| none: its breaker is open            | DEFERRED  | PENDING until it half-opens; no attempt spent, nothing was sent |
| 410                                  | REFUSED   | its subscription is paused, and it waits there; without: ERROR  |
| 501, or the request is not possible  | REFUSED   | ERROR                                                           |
| anything else, or no answer          | FAILED    | PENDING by the retry schedule; after its last delay ERROR       |

A job that would be tried again after its `expires_at` is EXPIRED instead.
"""

from http import HTTPStatus

import msgspec

from penstock.domain.job import DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.limits import SECOND_MS
from penstock.domain.order import is_expired
from penstock.domain.outcome import (
    AttemptOutcome,
    CircuitOpen,
    Deferred,
    HttpError,
    MediationOutcome,
    MediationResult,
    RateLimited,
)
from penstock.domain.retry import DEFAULT_RETRY_SCHEDULE
from penstock.domain.subscription import Subscription
from penstock.events.store import Done, TryLater, Verdict

_JITTER_SHARE = 0.2


class Judgement(msgspec.Struct, frozen=True):
    """The outcome of an attempt, and what happens to its job."""

    outcome: AttemptOutcome
    verdict: Verdict
    pauses: bool = False
    """Whether to pause the subscription, because its endpoint says that it is gone."""


def judge(
    job: DispatchJob, subscription: Subscription | None, delivered: MediationOutcome, now_ms: int, jitter: float
) -> Judgement:
    """Decide what follows; `jitter` is a random number from 0 to 1."""
    match delivered:
        case MediationOutcome(result=MediationResult.SUCCESS):
            return Judgement(AttemptOutcome.DELIVERED, Done(JobStatus.COMPLETED))
        case MediationOutcome(error=CircuitOpen(retry_s=retry_s)):
            return Judgement(AttemptOutcome.DEFERRED, _later(job, now_ms + _spread_ms(retry_s, jitter)))
        case MediationOutcome(error=Deferred() | RateLimited()):
            return Judgement(AttemptOutcome.DEFERRED, _later(job, now_ms + _deferral_ms(delivered, jitter)))
        case MediationOutcome(error=HttpError(status=HTTPStatus.GONE)) if subscription is not None:
            # Due at once, so that it is delivered as soon as the subscription is resumed.
            return Judgement(AttemptOutcome.REFUSED, TryLater(now_ms), pauses=True)
        case MediationOutcome(result=MediationResult.ERROR_CONFIG) | MediationOutcome(error=HttpError(HTTPStatus.GONE)):
            return Judgement(AttemptOutcome.REFUSED, Done(JobStatus.ERROR))
    schedule = DEFAULT_RETRY_SCHEDULE if subscription is None else subscription.retry
    delay_ms = schedule.delay_ms(job.attempt_count + 1, jitter, delivered.delay_s)
    verdict = Done(JobStatus.ERROR) if delay_ms is None else _later(job, now_ms + delay_ms)
    return Judgement(AttemptOutcome.FAILED, verdict)


def _deferral_ms(delivered: MediationOutcome, jitter: float) -> int:
    delay_s = delivered.effective_delay_s
    return delay_s * SECOND_MS if delivered.has_custom_delay else _spread_ms(delay_s, jitter)


def _spread_ms(delay_s: int, jitter: float) -> int:
    return round(delay_s * (1 + jitter * _JITTER_SHARE) * SECOND_MS)


def _later(job: DispatchJob, due_at_ms: int) -> Verdict:
    if is_expired(job.expires_at_ms, due_at_ms):
        return Done(JobStatus.EXPIRED)
    return TryLater(due_at_ms)
