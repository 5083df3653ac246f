"""The outcome of one delivery, read from the endpoint's answer, and what follows from it: decisions as data.

The meaning of an answer (DELIVERY-ANSWER-1):

| status                       | outcome                                                             |
|------------------------------|---------------------------------------------------------------------|
| 2xx                          | SUCCESS, whatever the body; an explicit `"ack": false` defers       |
| 408, 425                     | ERROR_PROCESS, retried                                              |
| 429                          | ERROR_PROCESS after Retry-After, 30 s without one                   |
| other 4xx                    | ERROR_CONFIG and a warning; ERROR_PROCESS if client errors are retried |
| 501                          | ERROR_CONFIG and a critical warning                                 |
| other 5xx                    | ERROR_PROCESS, retried; a 503's Retry-After is its delay            |
| anything else, 3xx with it   | ERROR_PROCESS; a redirect is never followed                         |
"""

import math
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum

import msgspec

from penstock.domain.limits import SECOND_MS

DEFAULT_DELAY_S = 30
FAST_FAIL_DELAY_S = 10
MAX_DELAY_S = 43_200
MAX_HOLD_S = 60
MAX_ATTEMPTS = 3

_ALWAYS_RETRIED = frozenset({408, 425})
_TOO_MANY_REQUESTS = 429
_NOT_IMPLEMENTED = 501
_UNAVAILABLE = 503

# More digits than any delay has; Python refuses to convert several thousand.
_MAX_DIGITS = 9
# Longer than any of the three forms of an HTTP date.
_MAX_DATE_CHARS = 64


class MediationResult(StrEnum):
    """How a delivery ended, for the router."""

    SUCCESS = "SUCCESS"
    ERROR_PROCESS = "ERROR_PROCESS"
    ERROR_CONFIG = "ERROR_CONFIG"
    ERROR_CONNECTION = "ERROR_CONNECTION"


class AttemptOutcome(StrEnum):
    """How a delivery ended, for the job."""

    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    REFUSED = "REFUSED"
    DEFERRED = "DEFERRED"


class Timeout(msgspec.Struct, frozen=True, tag=True):
    """The endpoint did not answer in time."""

    after_s: float


class CircuitOpen(msgspec.Struct, frozen=True, tag=True):
    """Nothing was sent, because the endpoint's breaker is open."""

    endpoint: str
    # When probes may be made.
    retry_s: int = DEFAULT_DELAY_S


class HttpError(msgspec.Struct, frozen=True, tag=True):
    """An answer that is not a success."""

    status: int
    detail: str = ""


class NetworkError(msgspec.Struct, frozen=True, tag=True):
    """The endpoint could not be reached, or the connection broke."""

    detail: str


class RateLimited(msgspec.Struct, frozen=True, tag=True):
    """The endpoint asked to slow down (429)."""

    retry_after_s: int | None = None


class Deferred(msgspec.Struct, frozen=True, tag=True):
    """The endpoint answered `ack: false`: try again later."""


class EgressDenied(msgspec.Struct, frozen=True, tag=True):
    """Nothing was sent, because the target may not be reached from here."""

    detail: str


MediationError = Timeout | CircuitOpen | HttpError | NetworkError | RateLimited | Deferred | EgressDenied


def is_retryable(error: MediationError | None) -> bool:
    """Return whether an immediate retry may help: time-outs, broken connections and 5xx."""
    match error:
        case Timeout() | NetworkError():
            return True
        case HttpError(status=status):
            return (status >= 500 and status != _NOT_IMPLEMENTED) or status in _ALWAYS_RETRIED
        case _:
            return False


class MediationOutcome(msgspec.Struct, frozen=True):
    """The result of one attempt."""

    result: MediationResult
    delay_s: int | None = None
    error: MediationError | None = None
    status: int | None = None
    # For how long the process endpoint refuses all others of the subscription.
    hold_s: int | None = None

    @property
    def has_custom_delay(self) -> bool:
        """Whether the endpoint chose the delay."""
        return bool(self.delay_s)

    @property
    def effective_delay_s(self) -> int:
        """How long the message waits: 1 to 43,200 seconds, 30 if the endpoint chose no delay."""
        return min(max(self.delay_s, 1), MAX_DELAY_S) if self.delay_s else DEFAULT_DELAY_S

    @property
    def is_final(self) -> bool:
        """Whether the message leaves the queue: delivered, or refused permanently."""
        return self.result is MediationResult.SUCCESS or self.result is MediationResult.ERROR_CONFIG


SUCCESS = MediationOutcome(MediationResult.SUCCESS, status=200)


def retry_delay_s(outcome: MediationOutcome, attempt: int) -> int | None:
    """Return the seconds until the next attempt after `attempt` (1, 2, 3) failed, or None if it was the last."""
    if outcome.is_final or attempt >= MAX_ATTEMPTS or not is_retryable(outcome.error):
        return None
    return attempt


def retry_after_s(header: str, now_ms: int) -> int | None:
    """Parse a Retry-After header (RFC 9110, 10.2.3) into whole seconds, 1 to 43,200; None if it cannot be parsed."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return MAX_DELAY_S if len(text) > _MAX_DIGITS else clamped_s(int(text))
    date_ms = _http_date_ms(text)
    return None if date_ms is None else clamped_s(-((now_ms - date_ms) // SECOND_MS))


def clamped_s(delay_s: int) -> int:
    """Limit a delay to what a queue supports."""
    return min(max(delay_s, 1), MAX_DELAY_S)


def _http_date_ms(text: str) -> int | None:
    if len(text) > _MAX_DATE_CHARS:
        return None
    try:
        date = parsedate_to_datetime(text)
        # One of the three forms has no zone; all of them are UTC.
        return int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()) * SECOND_MS
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


class ClientErrors(StrEnum):
    """What a 4xx means: the message is invalid and dropped with a warning, or it is retried."""

    ACK = "ack"
    RETRY = "retry"


class Severity(StrEnum):
    """How serious a warning about a delivery is."""

    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


# Raw, because a number that no type can hold must not hide the `ack: false` beside it.
class _Body(msgspec.Struct, rename="camel"):
    ack: msgspec.Raw = msgspec.Raw(b"")
    delay_seconds: msgspec.Raw = msgspec.Raw(b"")


class _Hold(msgspec.Struct, rename="camel"):
    hold_seconds: int = 0


_body_decoder = msgspec.json.Decoder(_Body)
_hold_decoder = msgspec.json.Decoder(_Hold)
_number_decoder = msgspec.json.Decoder(int | float)


def outcome_of(
    status: int,
    retry_after: str | None,
    body: bytes,
    now_ms: int,
    client_errors: ClientErrors = ClientErrors.ACK,
) -> MediationOutcome:
    """Return the outcome of an answer; never raises, whatever the endpoint sent."""
    if 200 <= status < 300:
        return _accepted(status, body)
    if status == _TOO_MANY_REQUESTS:
        return _rate_limited(retry_after, now_ms)
    if _is_refusal(status, client_errors):
        return MediationOutcome(MediationResult.ERROR_CONFIG, error=HttpError(status), status=status)
    delay_s = retry_after_s(retry_after, now_ms) if status == _UNAVAILABLE and retry_after is not None else None
    return MediationOutcome(MediationResult.ERROR_PROCESS, delay_s, HttpError(status), status)


def with_hold(outcome: MediationOutcome, body: bytes) -> MediationOutcome:
    """Add what the body of the process endpoint says about the subscription: refused by its breaker for a while."""
    if outcome.result is not MediationResult.SUCCESS or b"holdSeconds" not in body:
        return outcome
    try:
        asked_s = _hold_decoder.decode(body).hold_seconds
    except (msgspec.DecodeError, UnicodeDecodeError):
        return outcome
    return msgspec.structs.replace(outcome, hold_s=min(asked_s, MAX_HOLD_S)) if asked_s > 0 else outcome


def severity_of(outcome: MediationOutcome) -> Severity | None:
    """Return the severity of the CONFIGURATION warning that an outcome causes, or None if it causes none."""
    if isinstance(outcome.error, EgressDenied):
        return Severity.ERROR
    if outcome.result is not MediationResult.ERROR_CONFIG:
        return None
    return Severity.CRITICAL if outcome.status == _NOT_IMPLEMENTED else Severity.ERROR


def _is_refusal(status: int, client_errors: ClientErrors) -> bool:
    if status == _NOT_IMPLEMENTED:
        return True
    return 400 <= status < 500 and status not in _ALWAYS_RETRIED and client_errors == ClientErrors.ACK


def _accepted(status: int, body: bytes) -> MediationOutcome:
    # The literal cannot be escaped in JSON: a body without it defers nothing and need not be parsed.
    if b"false" in body:
        deferral = _deferral(status, body)
        if deferral is not None:
            return deferral
    return SUCCESS if status == SUCCESS.status else MediationOutcome(MediationResult.SUCCESS, status=status)


def _deferral(status: int, body: bytes) -> MediationOutcome | None:
    try:
        answer = _body_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if bytes(answer.ack) != b"false":
        return None
    return MediationOutcome(MediationResult.ERROR_PROCESS, _delay_s(bytes(answer.delay_seconds)), Deferred(), status)


def _delay_s(raw: bytes) -> int | None:
    """Return the requested delay, rounded up; None, so the default, for 0 and for anything but a number."""
    try:
        number = _number_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return clamped_s(math.ceil(number)) if number else None


def _rate_limited(retry_after: str | None, now_ms: int) -> MediationOutcome:
    asked_s = None if retry_after is None else retry_after_s(retry_after, now_ms)
    delay_s = DEFAULT_DELAY_S if asked_s is None else asked_s
    return MediationOutcome(MediationResult.ERROR_PROCESS, delay_s, RateLimited(asked_s), status=_TOO_MANY_REQUESTS)


def error_text(error: MediationError | None) -> str | None:
    """Describe why an attempt did not deliver; None if it did."""
    match error:
        case None:
            return None
        case Timeout(after_s):
            return f"no answer within {after_s:g} s"
        case CircuitOpen(endpoint, _):
            return f"not sent: {endpoint} has failed too often, its breaker is open"
        case HttpError(status, _):
            return f"answered {status}"
        case RateLimited():
            return "answered 429: too many requests"
        case Deferred():
            return "answered ack: false"
        case NetworkError(detail) | EgressDenied(detail):
            return detail
