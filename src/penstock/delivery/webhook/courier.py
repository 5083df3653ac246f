"""The courier: sends one request to a subscriber, through its breaker, and returns the outcome."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import msgspec

from penstock.delivery.attempt import Attempts, Client
from penstock.delivery.breakers import Breakers
from penstock.delivery.egress import AnyAddress, EgressGuard, Guard
from penstock.delivery.errors import ConnectFailed, EgressRefused, NoToken
from penstock.delivery.http.answer import Answer
from penstock.delivery.http.client import HttpClient
from penstock.delivery.http.proxy import is_name
from penstock.delivery.http.request import parse_target
from penstock.delivery.http.settings import DeliverySettings
from penstock.delivery.webhook.certificates import CertifiedClients
from penstock.delivery.webhook.oauth2 import OAuth2Tokens
from penstock.delivery.webhook.request import AUTHORIZATION, DeliveryRequest
from penstock.delivery.webhook.secret_box import SecretBox
from penstock.domain.addresses import Network
from penstock.domain.errors import InvalidArgument
from penstock.domain.job import kept_response
from penstock.domain.outcome import (
    CircuitOpen,
    ClientErrors,
    EgressDenied,
    MediationOutcome,
    MediationResult,
    NetworkError,
    outcome_of,
)
from penstock.domain.subscription import OAuth2Client
from penstock.edge.clock import Clock, stopwatch
from penstock.ops.config import HttpVersion

_LOOKUP_S = 2.0
_LEAST_S = 1.0


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
        certified: CertifiedClients | None = None,
    ) -> None:
        self._attempts = Attempts(client, clock)
        self._certified = certified
        self._tokens = OAuth2Tokens(self._attempts, breakers, clock)
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
        if request.oauth2 is not None:
            return await self._deliver_with_token(request, request.oauth2)
        attempts = self._attempts
        if request.certificate is not None:
            if self._certified is None:
                return undeliverable("this process shows no client certificates")
            try:
                attempts = Attempts(self._certified.of(request.certificate), self._clock)
            except InvalidArgument as error:
                return undeliverable(error.message)
        response: str | None = None

        def read(answer: Answer) -> MediationOutcome:
            nonlocal response
            response = kept_response(answer.body.decode("utf-8", "replace"))
            now_ms = self._clock.now_ms()
            return outcome_of(answer.status, answer.retry_after, answer.body, now_ms, ClientErrors.RETRY)

        breaker = self.breakers.of(request.head.target.endpoint)
        started_s = stopwatch()
        outcome = await attempts.make(
            breaker, request.head, request.body, request.signature, read, timeout_s=request.timeout_s
        )
        return WebhookDelivery(outcome, round((stopwatch() - started_s) * 1000), response)

    async def _deliver_with_token(self, request: DeliveryRequest, client: OAuth2Client) -> WebhookDelivery:
        """Send a request with a token, and once more with a new one if the answer is 401, in the time for one."""
        end_s = stopwatch() + request.timeout_s
        delivery: WebhookDelivery | None = None
        for _ in range(2):
            try:
                async with asyncio.timeout(_left_s(end_s)):
                    token = await self._tokens.get(client)
            except (NoToken, TimeoutError) as error:
                # What the endpoint answered says more than what the issuer did afterwards.
                return delivery or WebhookDelivery(_without_token(error, request.timeout_s))
            head = request.head.with_values(((AUTHORIZATION, f"Bearer {token.value}"),))
            left_s = min(_left_s(end_s), request.timeout_s)
            delivery = await self.deliver(msgspec.structs.replace(request, head=head, oauth2=None, timeout_s=left_s))
            if delivery.outcome.status != HTTPStatus.UNAUTHORIZED:
                break
            self._tokens.drop(client, token)
        assert delivery is not None
        return delivery

    def close(self) -> None:
        """End what deliveries wait for."""
        self._tokens.close()
        if self._certified is not None:
            self._certified.close()


def _left_s(end_s: float) -> float:
    # Time-outs are found by a timer that all requests share, which a very short one would make busy.
    return max(round(end_s - stopwatch(), 1), _LEAST_S)


def _without_token(error: NoToken | TimeoutError, timeout_s: float) -> MediationOutcome:
    """Return the outcome of a delivery that got no token: it is repeated, and the endpoint's breaker does not count."""
    if isinstance(error, NoToken) and error.rest_s is not None:
        return MediationOutcome(MediationResult.ERROR_PROCESS, error=CircuitOpen(error.issuer, error.rest_s))
    reason = error.message if isinstance(error, NoToken) else f"no OAuth2 token within {timeout_s:g} s"
    return MediationOutcome(MediationResult.ERROR_CONNECTION, error=NetworkError(reason))


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
            certified = CertifiedClients(lambda tls: HttpClient(guard, delivery, tls))
            proxied = bool(settings.egress_proxy)
            courier = Courier(client, breakers, clock, secrets, guard, is_proxied=proxied, certified=certified)
            try:
                yield courier
            finally:
                courier.close()
    finally:
        guard.close()
