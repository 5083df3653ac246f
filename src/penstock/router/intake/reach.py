"""Whether a queue answers, counted from its first start and not from the start of its newest consumer."""

from collections.abc import Callable

from penstock.domain.errors import NotFound, PenstockError
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.router.monitoring.warnings import WarningCode, Warnings, WarningSeverity

TICK_S = 5.0


class RunningTime:
    """Time in which this process runs.

    A process that was stopped (SIGSTOP, a suspended machine, a blocked event loop) reads the answers of that time only
    afterwards: the queue was not silent. Of each stop two ticks count at most; without ticks all of it does.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._stopped_ms = 0
        self._ticked_ms: int | None = None

    def tick(self) -> None:
        """Record that the process runs; to be called every TICK_S."""
        self._stopped_ms += self._late_ms()
        self._ticked_ms = self._now_ms()

    def now_ms(self) -> int:
        """Return milliseconds since some moment."""
        return self._now_ms() - self._stopped_ms - self._late_ms()

    def _late_ms(self) -> int:
        return (
            0 if self._ticked_ms is None else max(0, self._now_ms() - self._ticked_ms - round(2 * TICK_S * SECOND_MS))
        )


class QueueReach:
    """When a queue answered last. It outlives the consumers of the queue (ROUTER-HEALTH-3)."""

    def __init__(self, name: str, clock: Clock, warnings: Warnings) -> None:
        self._name = name
        self._clock = clock
        self._warnings = warnings
        self._since_ms = clock.now_ms()
        self._failure: PenstockError | None = None
        # None while it has never answered.
        self.answered_ms: int | None = None

    def answered(self) -> None:
        """Record an answer."""
        self.answered_ms = self._clock.now_ms()
        self._failure = None

    def failed(self, error: PenstockError) -> None:
        """Record an error. That the queue does not exist is an answer too: its first message may create it."""
        if isinstance(error, NotFound):
            self.answered()
        self._failure = error
        if self.answered_ms is None:
            self.warn()

    @property
    def is_missing(self) -> bool:
        """Whether the server answers that there is no such queue."""
        return isinstance(self._failure, NotFound)

    @property
    def silent_ms(self) -> int:
        """Milliseconds since the last answer, or since the queue was first consumed."""
        return self._clock.now_ms() - (self._since_ms if self.answered_ms is None else self.answered_ms)

    def warn(self) -> None:
        """Warn that the queue is not reached."""
        reason = self._failure or "it does not answer"
        text = f"the queue cannot be reached: {reason}"
        self._warnings.add(WarningCode.QUEUE_VALIDATION, WarningSeverity.WARN, f"queue {self._name}", text)
