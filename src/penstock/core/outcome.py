"""What became of one delivery, and what follows from it: a decision as data, apart from carrying it out."""

from enum import StrEnum

import msgspec

DEFAULT_DELAY_S = 30
FAST_FAIL_DELAY_S = 10
MAX_DELAY_S = 43_200
MAX_ATTEMPTS = 3


class MediationResult(StrEnum):
    """The four ways a delivery ends."""

    SUCCESS = "SUCCESS"
    ERROR_PROCESS = "ERROR_PROCESS"
    ERROR_CONFIG = "ERROR_CONFIG"
    ERROR_CONNECTION = "ERROR_CONNECTION"


class Timeout(msgspec.Struct, frozen=True, tag=True):
    """No answer in time."""

    after_s: float


class CircuitOpen(msgspec.Struct, frozen=True, tag=True):
    """Nothing was sent: the endpoint's breaker is open."""

    endpoint: str


class HttpError(msgspec.Struct, frozen=True, tag=True):
    """An answer that is not a success."""

    status: int
    detail: str = ""


class NetworkError(msgspec.Struct, frozen=True, tag=True):
    """The endpoint could not be reached, or the connection broke."""

    detail: str


class RateLimited(msgspec.Struct, frozen=True, tag=True):
    """The endpoint asked for a pause (429)."""

    retry_after_s: int | None = None


class Deferred(msgspec.Struct, frozen=True, tag=True):
    """The endpoint is alive and said `ack: false`: later."""


class EgressDenied(msgspec.Struct, frozen=True, tag=True):
    """Nothing was sent: the target may not be reached from here."""

    detail: str


MediationError = Timeout | CircuitOpen | HttpError | NetworkError | RateLimited | Deferred | EgressDenied


def is_retryable(error: MediationError | None) -> bool:
    """Whether another attempt at once may help: time-outs, broken connections and 5xx."""
    match error:
        case Timeout() | NetworkError():
            return True
        case HttpError(status=status):
            return (status >= 500 and status != 501) or status in (408, 425)
        case _:
            return False


class MediationOutcome(msgspec.Struct, frozen=True):
    """The end of one attempt."""

    result: MediationResult
    delay_s: int | None = None
    error: MediationError | None = None
    status: int | None = None

    @property
    def has_custom_delay(self) -> bool:
        """Whether the endpoint chose the delay."""
        return bool(self.delay_s)

    @property
    def effective_delay_s(self) -> int:
        """How long the message waits: 1 to 43,200 seconds, 30 if nobody said."""
        return min(max(self.delay_s, 1), MAX_DELAY_S) if self.delay_s else DEFAULT_DELAY_S

    @property
    def is_final(self) -> bool:
        """Whether the message leaves the queue: delivered, or refused for good."""
        return self.result is MediationResult.SUCCESS or self.result is MediationResult.ERROR_CONFIG


SUCCESS = MediationOutcome(MediationResult.SUCCESS, status=200)


def retry_delay_s(outcome: MediationOutcome, attempt: int) -> int | None:
    """Seconds until the next attempt after `attempt` (1, 2, 3) ended so; None if it was the last."""
    if outcome.is_final or attempt >= MAX_ATTEMPTS or not is_retryable(outcome.error):
        return None
    return attempt
