"""What the process endpoint counts."""

from penstock.domain.job import AttemptOutcome
from penstock.jobs.delivering import Beginning
from penstock.ops.telemetry.metrics import Metrics


class ProcessMetrics:
    """Deliveries to subscribers, and pointers that led to none."""

    def __init__(self, metrics: Metrics) -> None:
        self._deliveries = metrics.counter(
            "job_deliveries", "Deliveries to subscribers, by how the attempt ended.", ("outcome",)
        )
        self._duration = metrics.histogram("job_delivery_seconds", "Time that subscribers took to answer.")
        self._not_begun = metrics.counter(
            "job_pointers_without_delivery", "Pointers whose job was not delivered, by the reason.", ("reason",)
        )
        self._given_up = metrics.counter("jobs_given_up", "Jobs that ended in ERROR.")
        self._paused = metrics.counter("subscriptions_gone", "Subscriptions paused because they answered 410.")

    def delivered(self, outcome: AttemptOutcome, duration_ms: int) -> None:
        """A delivery has ended."""
        self._deliveries.labels(outcome.value).inc()
        self._duration.observe(duration_ms / 1000)

    def not_begun(self, reason: Beginning) -> None:
        """A pointer came whose job could not be delivered."""
        self._not_begun.labels(reason.name).inc()

    def given_up(self) -> None:
        """A job ended in ERROR."""
        self._given_up.inc()

    def paused(self) -> None:
        """A subscription was paused."""
        self._paused.inc()
