"""What is shown of a breaker."""

import msgspec


class BreakerView(msgspec.Struct, frozen=True, rename="camel"):
    """The breaker of an endpoint."""

    endpoint: str
    state: str
    calls: int
    failures: int
    failure_ratio: float
    opened_at_ms: int | None
    rejected: int
