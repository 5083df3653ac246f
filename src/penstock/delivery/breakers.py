"""The breakers of all endpoints and hosts; the least recently used are removed beyond a limit."""

from weakref import WeakValueDictionary

import msgspec

from penstock.domain.breaker import CLOSED, Breaker, HostBreaker
from penstock.edge.clock import Clock

MAX_ENDPOINTS = 10_000


class BreakerView(msgspec.Struct, frozen=True, rename="camel"):
    """The current state of the breaker of an endpoint, or of a host, which has no path."""

    endpoint: str
    state: str
    calls: int
    failures: int
    failure_ratio: float
    opened_at_ms: int | None
    rejected: int


class Breakers:
    """The breakers by endpoint (scheme, host, port and path)."""

    def __init__(self, clock: Clock, max_endpoints: int = MAX_ENDPOINTS) -> None:
        self._clock = clock
        self._max_endpoints = max_endpoints
        self._breakers: dict[str, Breaker] = {}
        # Those of the endpoints above, which keep them alive.
        self._hosts: WeakValueDictionary[str, HostBreaker] = WeakValueDictionary()

    def of(self, endpoint: str) -> Breaker:
        """Return the breaker of an endpoint, a new closed one if there was none."""
        breaker = self._breakers.get(endpoint)
        if breaker is None:
            if len(self._breakers) >= self._max_endpoints:
                self._drop_least_used()
            breaker = self._breakers[endpoint] = Breaker(self._clock.now_ms(), self._host_of(endpoint))
        return breaker

    def _host_of(self, endpoint: str) -> HostBreaker:
        name = "/".join(endpoint.split("/", 3)[:3])
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = HostBreaker()
        return host

    def views(self) -> list[BreakerView]:
        """Return the breakers of all endpoints, and of the hosts that are not closed, sorted."""
        hosts = [_host_view(name, host) for name, host in self._hosts.items() if host.state is not CLOSED]
        endpoints = [_view(endpoint, breaker) for endpoint, breaker in self._breakers.items()]
        return sorted([*hosts, *endpoints], key=lambda view: view.endpoint)

    def reset(self, endpoint: str) -> bool:
        """Close the breaker of an endpoint and that of its host, or of a host; return False if there is none."""
        breaker = self._breakers.get(endpoint)
        host = self._hosts.get(endpoint) if breaker is None else breaker.host
        if breaker is not None:
            breaker.reset()
        if host is not None:
            host.reset()
        return breaker is not None or host is not None

    def reset_all(self) -> int:
        """Close all breakers, and return the number of endpoints."""
        for breaker in self._breakers.values():
            breaker.reset()
        for host in self._hosts.values():
            host.reset()
        return len(self._breakers)

    def _drop_least_used(self) -> None:
        """Remove a tenth at once, so that many new endpoints do not cause a sort each."""
        by_use = sorted(self._breakers, key=lambda endpoint: self._breakers[endpoint].used_ms)
        for endpoint in by_use[: max(1, self._max_endpoints // 10)]:
            del self._breakers[endpoint]


def _view(endpoint: str, breaker: Breaker) -> BreakerView:
    calls, failures = breaker.calls, breaker.failures
    return BreakerView(
        endpoint=endpoint,
        state=breaker.state,
        calls=calls,
        failures=failures,
        failure_ratio=failures / calls if calls else 0.0,
        opened_at_ms=breaker.opened_ms,
        rejected=breaker.rejected,
    )


def _host_view(name: str, host: HostBreaker) -> BreakerView:
    return BreakerView(
        endpoint=name,
        state=host.state,
        calls=host.failures,
        failures=host.failures,
        failure_ratio=1.0,
        opened_at_ms=host.opened_ms,
        rejected=host.rejected,
    )
