"""Publishes the events of jobs in ERROR to the dead-letter topics of their subscriptions."""

from google.pubsub_v1 import types

from penstock.delivery import envelope_of
from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.events.topics import TopicClient

_MOST_REASON_CHARS = 1024


class PubsubDeadLetters:
    """Publishes to a Pub/Sub server; creates a topic that does not exist."""

    def __init__(self, topics: TopicClient) -> None:
        self._topics = topics

    async def publish(self, topic: str, job: DispatchJob, event: StoredEvent | None, reason: str) -> None:
        """Publish a copy to a topic; Unavailable if that fails."""
        attributes = {
            "penstock-job": job.id,
            "penstock-reason": reason[:_MOST_REASON_CHARS],
            "penstock-group": job.group_key,
        }
        message = types.PubsubMessage(
            data=envelope_of(job, event).body, attributes=attributes, ordering_key=job.group_key
        )
        await self._topics.publish(topic, message)
