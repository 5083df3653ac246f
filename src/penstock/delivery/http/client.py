"""The HTTP client: sends a request and returns its answer."""

import asyncio
import ssl
from types import TracebackType

from penstock.delivery.egress import AnyAddress, Guard
from penstock.delivery.errors import StaleConnection
from penstock.delivery.http.answer import Answer
from penstock.delivery.http.connection import Deadline
from penstock.delivery.http.connections import Connections
from penstock.delivery.http.dialer import Dialer
from penstock.delivery.http.request import Origin, RequestHead
from penstock.delivery.http.settings import HttpClientSettings
from penstock.domain.signing import Signature
from penstock.edge.outbox import Outbox


class HttpClient:
    """Sends requests over persistent connections. Bound to one event loop; close it with `async with`."""

    def __init__(self, guard: Guard, settings: HttpClientSettings, tls: ssl.SSLContext | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._timeout_s = settings.request_timeout_s
        self._dialer = Dialer(guard, settings, tls)
        self._outbox = Outbox()
        self._origins: dict[Origin, Connections] = {}
        # One timer for all deadlines: a timer per request costs more than checking every connection once a second.
        self._tick_s = min(1.0, settings.request_timeout_s / 10, settings.idle_s / 10)
        self._shortest_s = 10 * self._tick_s
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> "HttpClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def send(
        self,
        head: RequestHead,
        body: bytes,
        signature: Signature | None = None,
        *,
        timeout_s: float | None = None,
        repeatable: bool = True,
        outlives_cancel: bool = False,
    ) -> Answer:
        """Send a request and return its answer; raise DeliveryFailed or EgressRefused if there is none.

        `timeout_s` replaces the time-out of the settings for this request. Either is found up to a tenth late.

        A reused connection that is closed before the answer begins was probably closed by the server before the
        request arrived; a `repeatable` request is then sent again, once, over a new connection.

        `outlives_cancel`: an answer that arrives together with a cancellation is returned, and the cancellation is
        lost. Only for a task that expects this.
        """
        after_s = self._timeout_s if timeout_s is None else timeout_s
        if after_s < self._shortest_s:
            self._check_sooner(after_s)
        deadline = Deadline(self._loop.time() + after_s, after_s)
        connections = self._origins.get(head.target.origin) or self._new_origin(head.target.origin)
        connection = connections.take()
        if connection is not None:
            exchange = connection.send(head, body, signature, deadline)
            try:
                return await exchange
            except StaleConnection:
                if not repeatable:
                    raise
            except asyncio.CancelledError:
                if outlives_cancel and _is_answered(exchange):
                    return exchange.result()
                connection.abandon(exchange)
                raise
        connection = await connections.open(deadline)
        exchange = connection.send(head, body, signature, deadline)
        try:
            return await exchange
        except asyncio.CancelledError:
            if outlives_cancel and _is_answered(exchange):
                return exchange.result()
            connection.abandon(exchange)
            raise

    def retire(self) -> None:
        """Close idle connections now, and the others when their answers are complete."""
        for connections in self._origins.values():
            connections.retire()

    def close(self) -> None:
        """Close all connections; pending requests fail."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connections in self._origins.values():
            connections.close()

    def _new_origin(self, origin: Origin) -> Connections:
        connections = self._origins[origin] = Connections(origin, self._dialer, self._settings, self._outbox)
        if self._timer is None:
            self._timer = self._loop.call_later(self._tick_s, self._sweep)
        return connections

    def _check_sooner(self, timeout_s: float) -> None:
        """Check often enough for a shorter time-out than all before."""
        self._shortest_s, self._tick_s = timeout_s, timeout_s / 10
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_later(self._tick_s, self._sweep)

    def _sweep(self) -> None:
        now_s = self._loop.time()
        for origin, connections in list(self._origins.items()):
            connections.sweep(now_s)
            if connections.is_unused:
                del self._origins[origin]
        self._timer = self._loop.call_later(self._tick_s, self._sweep) if self._origins else None


def _is_answered(exchange: "asyncio.Future[Answer]") -> bool:
    return exchange.done() and not exchange.cancelled() and exchange.exception() is None


async def exchange_once(head: RequestHead, body: bytes, settings: HttpClientSettings) -> Answer:
    """Send one request to any address, over a new connection."""
    async with HttpClient(AnyAddress(), settings) as client:
        return await client.send(head, body)
