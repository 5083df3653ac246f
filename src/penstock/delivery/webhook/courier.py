"""The courier: sends one request to a subscriber, through its breaker, and returns the outcome."""

import msgspec

from penstock.delivery.attempt import Attempts, Client
from penstock.delivery.breakers import Breakers
from penstock.delivery.http.answer import Answer
from penstock.delivery.webhook.request import DeliveryRequest
from penstock.domain.job import kept_response
from penstock.domain.outcome import ClientErrors, EgressDenied, MediationOutcome, MediationResult, outcome_of
from penstock.edge.clock import Clock, stopwatch


class WebhookDelivery(msgspec.Struct, frozen=True):
    """The result of a request."""

    outcome: MediationOutcome
    duration_ms: int = 0
    response: str | None = None


def undeliverable(reason: str) -> WebhookDelivery:
    """Return the result of a delivery that can never be made."""
    return WebhookDelivery(MediationOutcome(MediationResult.ERROR_CONFIG, error=EgressDenied(reason)))


class Courier:
    """Sends requests to subscribers."""

    def __init__(self, client: Client, breakers: Breakers, clock: Clock) -> None:
        self._attempts = Attempts(client, clock)
        self.breakers = breakers
        self._clock = clock

    async def deliver(self, request: DeliveryRequest) -> WebhookDelivery:
        """Send a request, unless its endpoint's breaker is open."""
        response: str | None = None

        def read(answer: Answer) -> MediationOutcome:
            nonlocal response
            response = kept_response(answer.body.decode("utf-8", "replace"))
            now_ms = self._clock.now_ms()
            return outcome_of(answer.status, answer.retry_after, answer.body, now_ms, ClientErrors.RETRY)

        breaker = self.breakers.of(request.head.target.endpoint)
        started_s = stopwatch()
        outcome = await self._attempts.make(
            breaker, request.head, request.body, request.signature, read, timeout_s=request.timeout_s
        )
        return WebhookDelivery(outcome, round((stopwatch() - started_s) * 1000), response)
