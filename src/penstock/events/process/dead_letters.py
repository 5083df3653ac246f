"""What happens to the events of jobs in ERROR whose subscriptions have a dead-letter topic."""

import logging
from typing import Protocol

from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob

log = logging.getLogger(__name__)


class DeadLetters(Protocol):
    """Receives what could not be delivered."""

    async def publish(self, topic: str, job: DispatchJob, event: StoredEvent | None, reason: str) -> None:
        """Publish a copy to a topic; raise a PenstockError if that fails."""


class NoDeadLetters:
    """For an API without a broker: only logs."""

    async def publish(self, topic: str, job: DispatchJob, event: StoredEvent | None, reason: str) -> None:
        """Log that there is no broker."""
        log.warning(
            "nothing is published to the dead-letter topic %s: this API has no broker", topic, extra={"job": job.id}
        )
