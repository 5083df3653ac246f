"""Where events go whose job was given up, for subscriptions that name a dead-letter topic."""

import logging
from typing import Protocol

from penstock.domain.event import Event
from penstock.domain.job import DispatchJob

log = logging.getLogger(__name__)


class DeadLetters(Protocol):
    """Takes what could not be delivered."""

    async def publish(self, topic: str, job: DispatchJob, event: Event | None, reason: str) -> None:
        """Put a copy into a topic; one of Penstock's errors if that cannot be done now."""


class NoDeadLetters:
    """For an API without a broker: the log is all there is."""

    async def publish(self, topic: str, job: DispatchJob, event: Event | None, reason: str) -> None:
        """Tell that there is no such topic here."""
        log.warning("no copy goes to the dead-letter topic %s: this API has no broker", topic, extra={"job": job.id})
