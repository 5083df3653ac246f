"""What happens to the events of jobs in ERROR whose subscriptions have a dead-letter topic or queue."""

import logging
from typing import TYPE_CHECKING, Protocol

from penstock.delivery import envelope_of
from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.events.process.queue_targets import PREFIX as QUEUE
from penstock.events.process.queue_targets import QueueTargets
from penstock.events.process.topic_targets import PREFIX as TOPIC

if TYPE_CHECKING:
    from penstock.events.topics import TopicClient

log = logging.getLogger(__name__)
_MOST_REASON_CHARS = 1024


class DeadLetters(Protocol):
    """Receives what could not be delivered."""

    async def publish(self, place: str, job: DispatchJob, event: StoredEvent | None, reason: str) -> None:
        """Publish a copy to a topic or a queue (`sqs:NAME`); raise a PenstockError if that fails."""


class DeadLetterCopies:
    """Publishes to topics and queues, which are created if they do not exist."""

    def __init__(self, topics: "TopicClient | None", queues: QueueTargets) -> None:
        self._topics = topics
        self._queues = queues

    async def publish(self, place: str, job: DispatchJob, event: StoredEvent | None, reason: str) -> None:
        """Publish a copy; without a Pub/Sub server, only log that there is none."""
        if place.startswith(QUEUE):
            await self._queues.send(place.removeprefix(QUEUE), job, event)
        elif self._topics is None:
            log.warning(
                "nothing is published to the dead-letter topic %s: this process knows no Pub/Sub server",
                place,
                extra={"job": job.id},
            )
        else:
            attributes = {
                "penstock-job": job.id,
                "penstock-reason": reason[:_MOST_REASON_CHARS],
                "penstock-group": job.group_key,
            }
            body = envelope_of(job, event).body
            await self._topics.publish(place.removeprefix(TOPIC), body, attributes, job.group_key)
