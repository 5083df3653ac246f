"""The circuit breaker of one endpoint: it opens after too many failures, and a few probes close it again.

The numbers are those of DELIVERY-BREAKER-1: open when 5 of the last 10 calls failed, probe after 5 seconds, close
after 3 successes.
"""

from enum import StrEnum

from penstock.domain.outcome import (
    CircuitOpen,
    Deferred,
    EgressDenied,
    HttpError,
    MediationOutcome,
    NetworkError,
    RateLimited,
    Timeout,
)

WINDOW_CALLS = 10
OPENING_FAILURES = 5
OPEN_MS = 5000
PROBES = 3

_WINDOW_MASK = (1 << WINDOW_CALLS) - 1
_NOT_IMPLEMENTED = 501


class BreakerState(StrEnum):
    """Whether calls go through; TRANSITIONS lists the moves."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


CLOSED = BreakerState.CLOSED
OPEN = BreakerState.OPEN
HALF_OPEN = BreakerState.HALF_OPEN

TRANSITIONS: frozenset[tuple[BreakerState, BreakerState]] = frozenset(
    {
        (CLOSED, OPEN),  # half of the last 10 calls failed
        (OPEN, HALF_OPEN),  # a call came after 5 seconds
        (HALF_OPEN, CLOSED),  # 3 probes succeeded, or it was reset
        (HALF_OPEN, OPEN),  # a probe failed
        (OPEN, CLOSED),  # it was reset
    }
)


class Verdict(StrEnum):
    """What a call says about the endpoint."""

    ALIVE = "ALIVE"
    FAILED = "FAILED"
    NEUTRAL = "NEUTRAL"


ALIVE = Verdict.ALIVE
FAILED = Verdict.FAILED
NEUTRAL = Verdict.NEUTRAL


def verdict_of(outcome: MediationOutcome) -> Verdict:
    """Return what an outcome says about the endpoint (DELIVERY-BREAKER-2, docs/decisions/0007)."""
    match outcome.error:
        case None:
            return ALIVE
        case Timeout() | NetworkError():
            return FAILED
        case HttpError(status=status):
            return FAILED if status >= 500 and status != _NOT_IMPLEMENTED else ALIVE
        case RateLimited() | Deferred() | CircuitOpen() | EgressDenied():
            return NEUTRAL


class Breaker:
    """Counts the calls to one endpoint, and admits or refuses the next."""

    __slots__ = ("_calls", "_era", "_probing", "_succeeded", "_window", "opened_ms", "rejected", "state", "used_ms")

    def __init__(self, now_ms: int) -> None:
        self.state = CLOSED
        self.opened_ms: int | None = None
        self.rejected = 0
        self.used_ms = now_ms
        self._era = 0
        self._clear()

    def _clear(self) -> None:
        self._window = 0  # the last calls as bits, the newest lowest; 1 is a failure
        self._calls = 0
        self._probing = 0
        self._succeeded = 0

    @property
    def calls(self) -> int:
        """The number of calls in the window, at most 10."""
        return self._calls

    @property
    def failures(self) -> int:
        """The number of failed calls in the window."""
        return self._window.bit_count()

    def admit(self, now_ms: int) -> int | None:
        """Return a ticket to pass to `settle` when the call ends, or None if no call may be made now."""
        self.used_ms = now_ms
        if self.state is CLOSED:
            return self._era
        if self.state is OPEN and self.opened_ms is not None and now_ms - self.opened_ms >= OPEN_MS:
            self._move(HALF_OPEN)
        if self.state is HALF_OPEN and self._probing + self._succeeded < PROBES:
            self._probing += 1
            return self._era
        self.rejected += 1
        return None

    def settle(self, ticket: int, verdict: Verdict, now_ms: int) -> None:
        """Count an admitted call; ignore it if the state has changed since it was admitted."""
        if ticket != self._era:
            return
        if self.state is CLOSED:
            self._count(verdict, now_ms)
        else:
            self._count_probe(verdict, now_ms)

    def reset(self) -> None:
        """Forget all calls and close the breaker."""
        self._move(CLOSED)
        self.rejected = 0

    def _count(self, verdict: Verdict, now_ms: int) -> None:
        if verdict is NEUTRAL or (verdict is ALIVE and self._calls == WINDOW_CALLS and not self._window):
            return
        self._window = (self._window << 1 | (verdict is FAILED)) & _WINDOW_MASK
        self._calls = min(self._calls + 1, WINDOW_CALLS)
        if self._calls == WINDOW_CALLS and self.failures >= OPENING_FAILURES:
            self._open(now_ms)

    def _count_probe(self, verdict: Verdict, now_ms: int) -> None:
        self._probing -= 1
        if verdict is FAILED:
            self._open(now_ms)
        elif verdict is ALIVE:
            self._succeeded += 1
            if self._succeeded == PROBES:
                self._move(CLOSED)

    def _open(self, now_ms: int) -> None:
        window, calls = self._window, self._calls
        self._move(OPEN)
        # Kept to show why it opened.
        self._window, self._calls = window, calls
        self.opened_ms = now_ms

    def _move(self, state: BreakerState) -> None:
        self.state = state
        self.opened_ms = None
        self._era += 1
        self._clear()
