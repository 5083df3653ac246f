"""The mediator: one attempt to deliver a message, from its pointer to an outcome."""

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import msgspec

from penstock.delivery.breakers import Breakers
from penstock.delivery.errors import AnswerTimedOut, ConnectTimedOut, DeliveryFailed, EgressRefused
from penstock.delivery.http.answer import Answer
from penstock.delivery.http.request import RequestHead, request_head
from penstock.delivery.http.settings import DeliverySettings
from penstock.domain.breaker import NEUTRAL, verdict_of
from penstock.domain.errors import InvalidArgument
from penstock.domain.limits import SECOND_MS
from penstock.domain.outcome import (
    CircuitOpen,
    EgressDenied,
    MediationOutcome,
    MediationResult,
    NetworkError,
    Timeout,
    outcome_of,
    severity_of,
)
from penstock.domain.pointer import MessagePointer
from penstock.domain.signing import Signature, sign
from penstock.edge.clock import Clock

log = logging.getLogger(__name__)

SOURCE = "HttpMediator"
WARNING_CODE = "CONFIGURATION"
# URLs and tokens whose heads are kept ready.
CACHED_HEADS = 4096

Warn = Callable[[str, str, str, str], None]
"""Code, severity, source and message of a warning."""

_encode = msgspec.json.Encoder().encode


class Client(Protocol):
    """Posts requests; HttpClient over real sockets, others in simulations."""

    async def post(self, head: RequestHead, body: bytes, signature: Signature | None = None) -> Answer:
        """Send a request and wait for its answer; DeliveryFailed or EgressRefused if there is none."""
        ...


class HttpMediator:
    """Posts a message's id to its endpoint, unless the endpoint's breaker is open."""

    def __init__(
        self, client: Client, breakers: Breakers, clock: Clock, warn: Warn, settings: DeliverySettings
    ) -> None:
        self._client = client
        self._breakers = breakers
        self._clock = clock
        self._warn = warn
        self._client_errors = settings.client_errors
        self._head_of = lru_cache(CACHED_HEADS)(request_head)

    async def attempt(self, pointer: MessagePointer, attempt: int) -> MediationOutcome:
        """Make one attempt, the first being 1; raises nothing but CancelledError."""
        try:
            head = self._head_of(pointer.mediation_target, pointer.auth_token)
            body = b'{"messageId":%b}' % _encode(pointer.id)
            signature = self._signature(pointer, body) if pointer.signing_secrets else None
        except (InvalidArgument, UnicodeError) as error:
            detail = f"message {pointer.id[:100]!r} was removed: {error}"
            unusable = MediationOutcome(MediationResult.ERROR_CONFIG, error=EgressDenied(detail))
            return self._told(unusable, pointer, attempt)
        endpoint = head.target.endpoint
        breaker = self._breakers.of(endpoint)
        ticket = breaker.admit(self._clock.now_ms())
        if ticket is None:
            refused = MediationOutcome(MediationResult.ERROR_PROCESS, error=CircuitOpen(endpoint))
            return self._told(refused, pointer, attempt)
        verdict = NEUTRAL
        try:
            # Awaited here and not in a method of its own, as every coroutine on the way costs each delivery.
            try:
                outcome = self._outcome(await self._client.post(head, body, signature))
            except Exception as error:
                outcome = _failure(error, endpoint)
            verdict = verdict_of(outcome)
        finally:
            # An attempt that is cancelled says nothing about the endpoint, but gives its probe's place back.
            breaker.settle(ticket, verdict, self._clock.now_ms())
        return outcome if outcome.error is None else self._told(outcome, pointer, attempt)

    def _outcome(self, answer: Answer) -> MediationOutcome:
        # Only a date to wait for needs the time.
        now_ms = self._clock.now_ms() if answer.retry_after is not None else 0
        return outcome_of(answer.status, answer.retry_after, answer.body, now_ms, self._client_errors)

    def _signature(self, pointer: MessagePointer, body: bytes) -> Signature:
        return sign(pointer.signing_secrets, pointer.id, self._clock.now_ms() // SECOND_MS, body)

    def _told(self, outcome: MediationOutcome, pointer: MessagePointer, attempt: int) -> MediationOutcome:
        """Log what went wrong; warn where a person has to do something."""
        reason = self._reason(outcome, pointer)
        log.info("not delivered: %s", reason, extra={"message_id": pointer.id, "attempt": attempt})
        severity = severity_of(outcome)
        if severity is not None:
            # Without the message's id: what repeats is counted, not listed again.
            self._warn(WARNING_CODE, severity, SOURCE, reason)
        return outcome

    def _reason(self, outcome: MediationOutcome, pointer: MessagePointer) -> str:
        if isinstance(outcome.error, EgressDenied):
            return outcome.error.detail
        endpoint = self._head_of(pointer.mediation_target, pointer.auth_token).target.endpoint
        if outcome.result is MediationResult.ERROR_CONFIG:
            return f"{endpoint} answered {outcome.status}: its message was removed; check the URL and the token"
        return f"{endpoint}: {outcome.error}"


def _failure(error: Exception, endpoint: str) -> MediationOutcome:
    match error:
        case AnswerTimedOut(after_s=after_s):
            return MediationOutcome(MediationResult.ERROR_PROCESS, error=Timeout(after_s))
        case ConnectTimedOut(after_s=after_s):
            return MediationOutcome(MediationResult.ERROR_CONNECTION, error=Timeout(after_s))
        case DeliveryFailed():
            return MediationOutcome(MediationResult.ERROR_CONNECTION, error=NetworkError(error.message))
        case EgressRefused():
            # Not ERROR_CONFIG: a message must not be lost to a setting that can be mended.
            return MediationOutcome(MediationResult.ERROR_PROCESS, error=EgressDenied(error.message))
        case _:
            log.error("a delivery failed in a way nobody foresaw", exc_info=error, extra={"endpoint": endpoint})
            return MediationOutcome(MediationResult.ERROR_PROCESS, error=NetworkError(type(error).__name__))
