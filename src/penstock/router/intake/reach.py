"""Whether a queue answers, counted from its first start and not from the start of its newest consumer."""

from penstock.domain.errors import NotFound, PenstockError
from penstock.edge.clock import Clock
from penstock.router.monitoring.warnings import WarningCode, Warnings, WarningSeverity


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
