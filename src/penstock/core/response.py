"""What an endpoint's answer means: seed 000's response table, as ruling 9 amends it.

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
from enum import StrEnum

import msgspec

from penstock.core.outcome import (
    DEFAULT_DELAY_S,
    SUCCESS,
    Deferred,
    EgressDenied,
    HttpError,
    MediationOutcome,
    MediationResult,
    RateLimited,
)
from penstock.core.retry_after import clamped_s, retry_after_s

_ALWAYS_RETRIED = frozenset({408, 425})
_TOO_MANY_REQUESTS = 429
_NOT_IMPLEMENTED = 501
_UNAVAILABLE = 503


class ClientErrors(StrEnum):
    """What a 4xx means: the message is at fault and is dropped with a warning, or it is tried again."""

    ACK = "ack"
    RETRY = "retry"


class Severity(StrEnum):
    """How serious a warning about a delivery is."""

    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


# Raw, because a number that no type holds must not hide the `ack: false` beside it.
class _Body(msgspec.Struct, rename="camel"):
    ack: msgspec.Raw = msgspec.Raw(b"")
    delay_seconds: msgspec.Raw = msgspec.Raw(b"")


_body_decoder = msgspec.json.Decoder(_Body)
_number_decoder = msgspec.json.Decoder(int | float)


def outcome_of(
    status: int,
    retry_after: str | None,
    body: bytes,
    now_ms: int,
    client_errors: ClientErrors = ClientErrors.ACK,
) -> MediationOutcome:
    """What becomes of a message whose endpoint gave this answer; never raises, whatever the endpoint sent."""
    if 200 <= status < 300:
        return _accepted(status, body)
    if status == _TOO_MANY_REQUESTS:
        return _rate_limited(retry_after, now_ms)
    if _is_refusal(status, client_errors):
        return MediationOutcome(MediationResult.ERROR_CONFIG, error=HttpError(status), status=status)
    delay_s = retry_after_s(retry_after, now_ms) if status == _UNAVAILABLE and retry_after is not None else None
    return MediationOutcome(MediationResult.ERROR_PROCESS, delay_s, HttpError(status), status)


def severity_of(outcome: MediationOutcome) -> Severity | None:
    """How serious the CONFIGURATION warning is that follows from an outcome; None if none does."""
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
    # The literal cannot be escaped in JSON: a body without it defers nothing, and needs no parsing.
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
    """The delay an endpoint asks for, rounded up; None for 0 and for what is not a number: the default holds."""
    try:
        number = _number_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return clamped_s(math.ceil(number)) if number else None


def _rate_limited(retry_after: str | None, now_ms: int) -> MediationOutcome:
    asked_s = None if retry_after is None else retry_after_s(retry_after, now_ms)
    delay_s = DEFAULT_DELAY_S if asked_s is None else asked_s
    return MediationOutcome(MediationResult.ERROR_PROCESS, delay_s, RateLimited(asked_s), status=_TOO_MANY_REQUESTS)
