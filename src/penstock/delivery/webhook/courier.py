"""The courier: one request to a subscriber, through its breaker, and what came of it. It raises nothing of its own."""

import asyncio
import logging
from typing import Protocol

import msgspec

from penstock.delivery.breakers import Breakers
from penstock.delivery.errors import AnswerTimedOut, ConnectTimedOut, DeliveryFailed, EgressRefused
from penstock.delivery.http.answer import Answer
from penstock.delivery.http.request import RequestHead
from penstock.delivery.webhook.request import DeliveryRequest
from penstock.domain.breaker import NEUTRAL, verdict_of
from penstock.domain.job import kept_response
from penstock.domain.outcome import (
    CircuitOpen,
    ClientErrors,
    EgressDenied,
    MediationError,
    MediationOutcome,
    MediationResult,
    NetworkError,
    Timeout,
    outcome_of,
)
from penstock.domain.signing import Signature
from penstock.edge.clock import Clock, stopwatch

log = logging.getLogger(__name__)


class Client(Protocol):
    """Posts requests."""

    async def post(self, head: RequestHead, body: bytes, signature: Signature | None = None) -> Answer:
        """Send a request and wait for its answer; DeliveryFailed or EgressRefused if there is none."""
        ...


class Delivery(msgspec.Struct, frozen=True):
    """How a request ended."""

    outcome: MediationOutcome
    duration_ms: int = 0
    response: str | None = None


def undeliverable(reason: str) -> Delivery:
    """A delivery that cannot be made, now or later."""
    return Delivery(MediationOutcome(MediationResult.ERROR_CONFIG, error=EgressDenied(reason)))


class Courier:
    """Sends requests to subscribers."""

    def __init__(self, client: Client, breakers: Breakers, clock: Clock) -> None:
        self._client = client
        self.breakers = breakers
        self._clock = clock

    async def deliver(self, request: DeliveryRequest) -> Delivery:
        """Send a request, unless its endpoint's breaker is open."""
        endpoint = request.head.target.endpoint
        breaker = self.breakers.of(endpoint)
        ticket = breaker.admit(self._clock.now_ms())
        if ticket is None:
            return Delivery(_failed(CircuitOpen(endpoint)))
        verdict = NEUTRAL
        try:
            delivery = await self._send(request)
            verdict = verdict_of(delivery.outcome)
            return delivery
        finally:
            # A delivery that is cancelled says nothing about the endpoint, but gives its probe's place back.
            breaker.settle(ticket, verdict, self._clock.now_ms())

    async def _send(self, request: DeliveryRequest) -> Delivery:
        started_s = stopwatch()
        answer: Answer | None = None
        try:
            async with asyncio.timeout(request.timeout_s):
                answer = await self._client.post(request.head, request.body, request.signature)
            outcome = outcome_of(
                answer.status, answer.retry_after, answer.body, self._clock.now_ms(), ClientErrors.RETRY
            )
        except TimeoutError:
            outcome = _failed(Timeout(request.timeout_s))
        except DeliveryFailed as error:
            outcome = _failed(_what_failed(error))
        except EgressRefused as error:
            outcome = _failed(EgressDenied(error.message))
        except Exception as error:
            log.exception("a delivery failed in a way nobody foresaw", extra={"endpoint": request.head.target.endpoint})
            outcome = _failed(NetworkError(type(error).__name__))
        response = None if answer is None else kept_response(answer.body.decode("utf-8", "replace"))
        return Delivery(outcome, round((stopwatch() - started_s) * 1000), response)


def _failed(error: MediationError) -> MediationOutcome:
    return MediationOutcome(MediationResult.ERROR_PROCESS, error=error)


def _what_failed(error: DeliveryFailed) -> MediationError:
    match error:
        case AnswerTimedOut(after_s=after_s) | ConnectTimedOut(after_s=after_s):
            return Timeout(after_s)
        case _:
            return NetworkError(error.message)
