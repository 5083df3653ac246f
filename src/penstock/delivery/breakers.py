"""The breakers of all endpoints; the least recently used are removed beyond a limit."""

import msgspec

from penstock.domain.breaker import Breaker
from penstock.edge.clock import Clock

MAX_ENDPOINTS = 10_000


class BreakerView(msgspec.Struct, frozen=True, rename="camel"):
    """The current state of an endpoint's breaker."""

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

    def of(self, endpoint: str) -> Breaker:
        """Return the breaker of an endpoint, a new closed one if there was none."""
        breaker = self._breakers.get(endpoint)
        if breaker is None:
            if len(self._breakers) >= self._max_endpoints:
                self._drop_least_used()
            breaker = self._breakers[endpoint] = Breaker(self._clock.now_ms())
        return breaker

    def views(self) -> list[BreakerView]:
        """Return all breakers, sorted by endpoint."""
        return [_view(endpoint, breaker) for endpoint, breaker in sorted(self._breakers.items())]

    def reset(self, endpoint: str) -> bool:
        """Close the breaker of an endpoint; return False if there is none."""
        breaker = self._breakers.get(endpoint)
        if breaker is not None:
            breaker.reset()
        return breaker is not None

    def reset_all(self) -> int:
        """Close all breakers, and return their number."""
        for breaker in self._breakers.values():
            breaker.reset()
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
