"""Mediators: make one attempt to deliver a message and return its outcome; one that does so by HTTP."""

import logging
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Protocol, runtime_checkable

import msgspec

from penstock.delivery import Answer, Attempts, Breakers, Client, DeliverySettings, request_head
from penstock.domain.errors import InvalidArgument
from penstock.domain.limits import SECOND_MS
from penstock.domain.outcome import (
    EgressDenied,
    MediationOutcome,
    MediationResult,
    error_text,
    outcome_of,
    severity_of,
    with_hold,
)
from penstock.domain.pointer import PROCESS_PATH, MessagePointer
from penstock.domain.signing import Signature, sign
from penstock.edge.clock import Clock, wall_ms
from penstock.router.pools.permits import Permit

log = logging.getLogger(__name__)

SOURCE = "HttpMediator"
WARNING_CODE = "CONFIGURATION"
# Pairs of URL and token whose request heads are cached.
CACHED_HEADS = 4096

Warn = Callable[[str, str, str, str], None]
"""Code, severity, source and message of a warning."""

_encode = msgspec.json.Encoder().encode


class Mediator(Protocol):
    """Delivers messages."""

    def attempt(self, pointer: MessagePointer, attempt: int) -> Coroutine[None, None, MediationOutcome | None]:
        """Make one attempt; the outcome reports any error. None is a defect, and counts as a failure."""
        ...


@runtime_checkable
class StagedMediator(Protocol):
    """Delivers messages, with something to do before and after the request that needs no permit."""

    def attempt_in_stages(
        self, pointer: MessagePointer, attempt: int, permit: Permit
    ) -> Coroutine[None, None, MediationOutcome | None]:
        """Make one attempt as `Mediator.attempt` does; hold the permit during the request only."""
        ...


Attempt = Callable[[MessagePointer, int, Permit], Coroutine[None, None, MediationOutcome | None]]


def attempt_of(mediator: Mediator | StagedMediator) -> Attempt:
    """Return the call that makes an attempt, with its permit; a mediator without stages does not need that."""
    if isinstance(mediator, StagedMediator):
        return mediator.attempt_in_stages
    attempt = mediator.attempt
    return lambda pointer, number, permit: attempt(pointer, number)


class HttpMediator:
    """Posts a message's id to its endpoint, unless the endpoint's breaker is open."""

    def __init__(
        self, client: Client, breakers: Breakers, clock: Clock, warn: Warn, settings: DeliverySettings
    ) -> None:
        self._attempts = Attempts(client, clock, self._report)
        self._breakers = breakers
        self._clock = clock
        self._warn = warn
        self._client_errors = settings.client_errors
        self._head_of = lru_cache(CACHED_HEADS)(request_head)
        self._read = self._outcome
        self._read_processed = self._processed

    def attempt(self, pointer: MessagePointer, attempt: int) -> Coroutine[None, None, MediationOutcome]:
        """Return the coroutine of an attempt, numbered from 1; it raises only CancelledError."""
        # Not `async`: one more coroutine per delivery would cost time on the hot path.
        try:
            head = self._head_of(pointer.mediation_target, pointer.auth_token)
            body = b'{"messageId":%b}' % _encode(pointer.id)
            signature = self._signature(pointer, body) if pointer.signing_secrets else None
        except (InvalidArgument, UnicodeError) as error:
            return self._unusable(pointer, attempt, error)
        breaker = self._breakers.of(head.target.endpoint)
        read = self._read_processed if head.target.path == PROCESS_PATH else self._read
        return self._attempts.make(breaker, head, body, signature, read, message_id=pointer.id, number=attempt)

    async def _unusable(self, pointer: MessagePointer, attempt: int, error: Exception) -> MediationOutcome:
        detail = f"message {pointer.id[:100]!r} was removed: {error}"
        outcome = MediationOutcome(MediationResult.ERROR_CONFIG, error=EgressDenied(detail))
        self._report(outcome, "", pointer.id, attempt)
        return outcome

    def _outcome(self, answer: Answer) -> MediationOutcome:
        # Only a Retry-After date needs the current time.
        now_ms = self._clock.now_ms() if answer.retry_after is not None else 0
        return outcome_of(answer.status, answer.retry_after, answer.body, now_ms, self._client_errors)

    def _processed(self, answer: Answer) -> MediationOutcome:
        return with_hold(self._outcome(answer), answer.body)

    def _signature(self, pointer: MessagePointer, body: bytes) -> Signature:
        return sign(pointer.signing_secrets, pointer.id, wall_ms(self._clock) // SECOND_MS, body)

    def _report(self, outcome: MediationOutcome, endpoint: str, message_id: str, attempt: int) -> None:
        """Log a failed attempt; warn if an operator has to act."""
        reason = _reason(outcome, endpoint)
        log.info("not delivered: %s", reason, extra={"message_id": message_id, "attempt": attempt})
        severity = severity_of(outcome)
        if severity is not None:
            # Without the message's id, so that repeated warnings are counted, not listed again.
            self._warn(WARNING_CODE, severity, SOURCE, reason)


def _reason(outcome: MediationOutcome, endpoint: str) -> str:
    if isinstance(outcome.error, EgressDenied):
        return outcome.error.detail
    if outcome.result is MediationResult.ERROR_CONFIG:
        return f"{endpoint} answered {outcome.status}: its message was removed; check the URL and the token"
    return f"{endpoint}: {error_text(outcome.error)}"
