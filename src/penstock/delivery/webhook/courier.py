"""The courier: sends one request to a subscriber, through its breaker, and returns the outcome."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from penstock.delivery.attempt import Attempts, Client
from penstock.delivery.breakers import Breakers
from penstock.delivery.egress import AnyAddress, EgressGuard, Guard
from penstock.delivery.errors import ConnectFailed, EgressRefused
from penstock.delivery.http.answer import Answer
from penstock.delivery.http.client import HttpClient
from penstock.delivery.http.proxy import is_name
from penstock.delivery.http.request import parse_target
from penstock.delivery.http.settings import DeliverySettings
from penstock.delivery.webhook.request import DeliveryRequest
from penstock.delivery.webhook.secret_box import SecretBox
from penstock.domain.addresses import Network
from penstock.domain.job import kept_response
from penstock.domain.outcome import ClientErrors, EgressDenied, MediationOutcome, MediationResult, outcome_of
from penstock.edge.clock import Clock, stopwatch
from penstock.ops.config import HttpVersion

_LOOKUP_S = 2.0


class CourierSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a process delivers to subscribers."""

    egress_allow: tuple[Network, ...] = ()
    egress_deny_ports: tuple[int, ...] = ()
    egress_proxy: str = ""
    connect_timeout_s: float = 10.0
    http_version: HttpVersion = HttpVersion.HTTP_2
    encryption_keys: tuple[bytes, ...] = ()
    """Keys for secrets at rest, the one that encrypts first."""

    def __repr__(self) -> str:
        # Without the keys, which must not reach a log or a plan of Spark.
        return "CourierSettings()"


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

    def __init__(
        self,
        client: Client,
        breakers: Breakers,
        clock: Clock,
        secret_box: SecretBox | None = None,
        guard: Guard | None = None,
        *,
        is_proxied: bool = False,
    ) -> None:
        self._attempts = Attempts(client, clock)
        self._guard = guard
        self._is_proxied = is_proxied
        self.breakers = breakers
        self.secret_box = secret_box or SecretBox()
        self._clock = clock

    async def refusal(self, url: str) -> str | None:
        """Return why the egress guard lets no delivery reach a target now; None if it does, or cannot tell soon."""
        origin = parse_target(url).origin
        if self._is_proxied and is_name(origin.host):
            return None
        with suppress(ConnectFailed, TimeoutError):
            async with asyncio.timeout(_LOOKUP_S):
                try:
                    await (self._guard or AnyAddress()).addresses(origin.host, origin.port)
                except EgressRefused as error:
                    return f"it is never delivered: {error.message}"
        return None

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


@asynccontextmanager
async def open_courier(settings: CourierSettings, breakers: Breakers, clock: Clock) -> AsyncIterator[Courier]:
    """Return a courier with its own connections, behind the egress guard."""
    # Each subscription has its own timeout, which is shorter than the client's.
    delivery = DeliverySettings(
        connect_timeout_s=settings.connect_timeout_s, http_version=settings.http_version, proxy=settings.egress_proxy
    )
    guard = EgressGuard(settings.egress_allow, deny_ports=settings.egress_deny_ports)
    try:
        async with HttpClient(guard, delivery) as client:
            secrets = SecretBox(settings.encryption_keys)
            yield Courier(client, breakers, clock, secrets, guard, is_proxied=bool(settings.egress_proxy))
    finally:
        guard.close()
