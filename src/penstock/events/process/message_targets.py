"""Targets that are not URLs: topics of the Pub/Sub server and queues of the SQS server that a process knows."""

from typing import TYPE_CHECKING

from penstock.delivery import WebhookDelivery
from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.events.process.queue_targets import PREFIX as QUEUE
from penstock.events.process.queue_targets import QueueTargets, check_queue_target
from penstock.events.process.topic_targets import PREFIX as TOPIC
from penstock.events.process.topic_targets import TopicTargets, check_topic_target

if TYPE_CHECKING:
    from penstock.events.topics import TopicClient

MESSAGE_PREFIXES = (TOPIC, QUEUE)


def check_message_target(target: str) -> None:
    """Raise InvalidArgument for a target with one of the prefixes that names no topic or queue."""
    if target.startswith(QUEUE):
        check_queue_target(target)
    else:
        check_topic_target(target)


class MessageTargets:
    """Delivers jobs to topics and queues."""

    def __init__(self, topics: "TopicClient | None" = None, queues_url: str = "") -> None:
        self.topics = TopicTargets(topics)
        self.queues = QueueTargets(queues_url)

    def refusal(self, target: str) -> str | None:
        """Return why nothing is delivered to a target with one of the prefixes; None if it is."""
        return (self.queues if target.startswith(QUEUE) else self.topics).refusal()

    async def deliver(self, job: DispatchJob, event: StoredEvent | None) -> WebhookDelivery:
        """Deliver a job whose target has one of the prefixes."""
        return await (self.queues if job.target.startswith(QUEUE) else self.topics).deliver(job, event)
