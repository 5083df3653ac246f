"""Circuit breakers: one opens after too many failures, and a few probes close it again.

The numbers are those of DELIVERY-BREAKER-1: open when half of the recent calls failed, and there were at least 10;
probe after 5 seconds; close after 3 successes. Recent are the calls of the last half minute or more, but not more than
the last 100, so that a few failures among many calls do not open it, and an endpoint that has died is noticed soon.

An endpoint has a breaker, and so has its host, for endpoints whose paths are all different (DELIVERY-BREAKER-5).
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

MIN_CALLS = 10
OPEN_MS = 5000
PROBES = 3

# The window has two halves: the current one, and the one before, which has ended after as many calls or as much time.
HALF_CALLS = 50
HALF_MS = 30_000

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
        (CLOSED, OPEN),  # half of the recent calls failed; of a host, 10 paths and none worked
        (OPEN, HALF_OPEN),  # a call came after 5 seconds
        (HALF_OPEN, CLOSED),  # 3 probes succeeded, of a host 1, or it was reset
        (HALF_OPEN, OPEN),  # a probe failed
        (OPEN, CLOSED),  # it was reset; of a host, a call that began earlier succeeded
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

    __slots__ = (
        "_calls",
        "_calls_before",
        "_era",
        "_failures",
        "_failures_before",
        "_half_ms",
        "_probing",
        "_succeeded",
        "host",
        "opened_ms",
        "rejected",
        "state",
        "used_ms",
    )

    def __init__(self, now_ms: int, host: "HostBreaker | None" = None) -> None:
        self.state = CLOSED
        self.host = host
        self.opened_ms: int | None = None
        self.rejected = 0
        self.used_ms = now_ms
        self._era = 0
        self._clear()

    def _clear(self) -> None:
        self._calls = self._failures = 0
        self._calls_before = self._failures_before = 0
        self._half_ms = 0
        self._probing = 0
        self._succeeded = 0

    @property
    def calls(self) -> int:
        """The number of calls in the window, at most 100."""
        return self._calls + self._calls_before

    @property
    def failures(self) -> int:
        """The number of failed calls in the window."""
        return self._failures + self._failures_before

    def admit(self, now_ms: int) -> int | None:
        """Return a ticket to pass to `settle` when the call ends, or None if no call may be made now."""
        self.used_ms = now_ms
        host = self.host
        if self.state is CLOSED and (host is None or host.state is CLOSED):
            return self._era
        if (host is None or host.may_be_called(now_ms)) and self._may_be_called(now_ms):
            if host is not None:
                host.called()
            return self._era
        self.rejected += 1
        return None

    def _may_be_called(self, now_ms: int) -> bool:
        if self.state is CLOSED:
            return True
        if self.state is OPEN and self.opened_ms is not None and now_ms - self.opened_ms >= OPEN_MS:
            self._move(HALF_OPEN)
        if self.state is OPEN or self._probing + self._succeeded >= PROBES:
            return False
        self._probing += 1
        return True

    def opens_in_ms(self, now_ms: int) -> int:
        """Return how long a call that was refused should wait; 0 if probes are under way."""
        opened_ms = [each.opened_ms for each in (self, self.host) if each is not None and each.opened_ms is not None]
        return max(0, max(opened_ms) + OPEN_MS - now_ms) if opened_ms else 0

    def settle(self, ticket: int, verdict: Verdict, now_ms: int) -> None:
        """Count an admitted call; ignore it if the state has changed since it was admitted."""
        if self.host is not None:
            self.host.settle(self, verdict, now_ms)
        if ticket != self._era or (verdict is NEUTRAL and self.state is CLOSED):
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
        if self._calls == HALF_CALLS or now_ms - self._half_ms >= HALF_MS:
            self._start_half(now_ms)
        self._calls += 1
        if verdict is FAILED:
            self._failures += 1
            if self.calls >= MIN_CALLS and 2 * self.failures >= self.calls:
                self._open(now_ms)

    def _start_half(self, now_ms: int) -> None:
        is_recent = now_ms - self._half_ms < 2 * HALF_MS
        self._calls_before, self._failures_before = (self._calls, self._failures) if is_recent else (0, 0)
        self._calls = self._failures = 0
        self._half_ms = now_ms

    def _count_probe(self, verdict: Verdict, now_ms: int) -> None:
        self._probing -= 1
        if verdict is FAILED:
            self._open(now_ms)
        elif verdict is ALIVE:
            self._succeeded += 1
            if self._succeeded == PROBES:
                self._move(CLOSED)

    def _open(self, now_ms: int) -> None:
        calls, failures = self.calls, self.failures
        self._move(OPEN)
        # Kept to show why it opened.
        self._calls, self._failures = calls, failures
        self.opened_ms = now_ms

    def _move(self, state: BreakerState) -> None:
        self.state = state
        self.opened_ms = None
        self._era += 1
        self._clear()


class HostBreaker:
    """Refuses calls to all paths of a host after 10 of them failed in a minute and none worked (DELIVERY-BREAKER-5).

    One path that works is enough to close it: the others have breakers of their own.
    """

    __slots__ = ("__weakref__", "_failed", "_probing", "_since_ms", "opened_ms", "rejected", "state")

    def __init__(self) -> None:
        self.state = CLOSED
        self.opened_ms: int | None = None
        self.rejected = 0
        # The paths that have failed since a call last succeeded, and when the first of them did.
        self._failed: set[Breaker] = set()
        self._since_ms = 0
        self._probing = 0

    @property
    def failures(self) -> int:
        """The number of paths that have failed, at most 10."""
        return len(self._failed)

    def may_be_called(self, now_ms: int) -> bool:
        """Return whether a call may be made now, and count one that may not."""
        if self.state is OPEN and self.opened_ms is not None and now_ms - self.opened_ms >= OPEN_MS:
            self._move(HALF_OPEN)
        if self.state is CLOSED or (self.state is HALF_OPEN and self._probing < PROBES):
            return True
        self.rejected += 1
        return False

    def called(self) -> None:
        """Count a call that is being made."""
        if self.state is HALF_OPEN:
            self._probing += 1

    def settle(self, path: Breaker, verdict: Verdict, now_ms: int) -> None:
        """Count the end of a call to a path."""
        if verdict is ALIVE:
            if self._failed:
                self.reset()
        elif self.state is HALF_OPEN:
            if verdict is FAILED:
                self._open(now_ms)
            else:
                self._probing = max(0, self._probing - 1)
        elif verdict is FAILED and self.state is CLOSED:
            self._count(path, now_ms)

    def reset(self) -> None:
        """Forget all failures and close the breaker."""
        self._failed.clear()
        self._move(CLOSED)
        self.rejected = 0

    def _count(self, path: Breaker, now_ms: int) -> None:
        if not self._failed or now_ms - self._since_ms >= 2 * HALF_MS:
            self._failed.clear()
            self._since_ms = now_ms
        self._failed.add(path)
        if len(self._failed) == MIN_CALLS:
            self._open(now_ms)

    def _open(self, now_ms: int) -> None:
        self._move(OPEN)
        self.opened_ms = now_ms

    def _move(self, state: BreakerState) -> None:
        self.state = state
        self.opened_ms = None
        self._probing = 0
