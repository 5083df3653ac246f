"""One attempt to deliver to an endpoint, through its breaker, classified into an outcome.

| what happened                         | result           | error        | breaker      |
|---------------------------------------|------------------|--------------|--------------|
| an answer                             | from `read`      | from `read`  | by the error |
| no answer in time                     | ERROR_PROCESS    | Timeout      | FAILED       |
| no connection in time                 | ERROR_CONNECTION | Timeout      | FAILED       |
| no connection, or it broke            | ERROR_CONNECTION | NetworkError | FAILED       |
| the egress guard refused              | ERROR_PROCESS    | EgressDenied | NEUTRAL      |
| the breaker is open, nothing was sent | ERROR_PROCESS    | CircuitOpen  | not counted  |
| an unexpected exception               | ERROR_PROCESS    | NetworkError | FAILED       |
| cancelled                             | CancelledError   | none         | NEUTRAL      |

The router, the courier of jobs and replays, and the Pub/Sub push make their attempts here.
"""

import logging
from collections.abc import Callable
from math import ceil
from typing import Protocol

from penstock.delivery.errors import AnswerTimedOut, ConnectTimedOut, DeliveryFailed, EgressRefused
from penstock.delivery.http.answer import Answer
from penstock.delivery.http.request import RequestHead
from penstock.domain.breaker import CLOSED, NEUTRAL, Breaker, BreakerState, verdict_of
from penstock.domain.limits import SECOND_MS
from penstock.domain.outcome import (
    CircuitOpen,
    EgressDenied,
    MediationOutcome,
    MediationResult,
    NetworkError,
    Timeout,
)
from penstock.domain.signing import Signature
from penstock.edge.clock import Clock

log = logging.getLogger(__name__)

Read = Callable[[Answer], MediationOutcome]
"""Converts an answer to an outcome."""

Report = Callable[[MediationOutcome, str, str, int], None]
"""Receives a failed outcome, the endpoint, the message's id and the number of the attempt."""


class Client(Protocol):
    """Sends requests: HttpClient over sockets, others in simulations."""

    async def send(
        self, head: RequestHead, body: bytes, signature: Signature | None = None, *, timeout_s: float | None = None
    ) -> Answer:
        """Send a request and return its answer; raise DeliveryFailed or EgressRefused if there is none."""
        ...


class Attempts:
    """Makes attempts through one client."""

    def __init__(self, client: Client, clock: Clock, report: Report | None = None) -> None:
        self._client = client
        self._clock = clock
        self._report = report

    async def make(
        self,
        breaker: Breaker,
        head: RequestHead,
        body: bytes,
        signature: Signature | None,
        read: Read,
        *,
        timeout_s: float | None = None,
        ticket: int | None = None,
        message_id: str = "",
        number: int = 1,
    ) -> MediationOutcome:
        """Make one attempt; raise only CancelledError.

        A caller that the breaker has already admitted passes its ticket.
        """
        if ticket is None:
            now_ms = self._clock.now_ms()
            ticket = breaker.admit(now_ms)
        if ticket is None:
            outcome = _refused(head.target.endpoint, breaker.opens_in_ms(now_ms))
        else:
            verdict = NEUTRAL
            try:
                # All in one coroutine: one more would cost time on every delivery.
                try:
                    outcome = read(await self._client.send(head, body, signature, timeout_s=timeout_s))
                except Exception as error:
                    outcome = outcome_of_failure(error, head.target.endpoint)
                verdict = verdict_of(outcome)
            finally:
                # A cancelled attempt is neutral, but must release its half-open probe.
                before = breaker.state
                breaker.settle(ticket, verdict, self._clock.now_ms())
                if breaker.state is not before:
                    _log_change(breaker, before, head.target.endpoint)
        if outcome.error is not None and self._report is not None:
            self._report(outcome, head.target.endpoint, message_id, number)
        return outcome


def _log_change(breaker: Breaker, before: BreakerState, endpoint: str) -> None:
    if breaker.state is CLOSED:
        log.info("the breaker is closed again: the endpoint answers", extra={"endpoint": endpoint})
    elif before is CLOSED:
        # Not each time that a probe fails, which is every few seconds.
        text = (
            "the breaker has opened: %d of the last %d calls failed; deliveries wait, and a few try the endpoint again"
        )
        log.warning(text, breaker.failures, breaker.calls, extra={"endpoint": endpoint})


def _refused(endpoint: str, opens_in_ms: int) -> MediationOutcome:
    retry_s = max(1, ceil(opens_in_ms / SECOND_MS))
    return MediationOutcome(MediationResult.ERROR_PROCESS, error=CircuitOpen(endpoint, retry_s))


def outcome_of_failure(error: Exception, endpoint: str) -> MediationOutcome:
    """Classify an exception of the client."""
    match error:
        case AnswerTimedOut(after_s=after_s):
            return MediationOutcome(MediationResult.ERROR_PROCESS, error=Timeout(after_s))
        case ConnectTimedOut(after_s=after_s):
            return MediationOutcome(MediationResult.ERROR_CONNECTION, error=Timeout(after_s))
        case DeliveryFailed():
            return MediationOutcome(MediationResult.ERROR_CONNECTION, error=NetworkError(error.message))
        case EgressRefused():
            # Not ERROR_CONFIG: a message must not be lost to a setting that can be corrected.
            return MediationOutcome(MediationResult.ERROR_PROCESS, error=EgressDenied(error.message))
        case _:
            log.error("a delivery failed with an unexpected error", exc_info=error, extra={"endpoint": endpoint})
            return MediationOutcome(MediationResult.ERROR_PROCESS, error=NetworkError(type(error).__name__))
