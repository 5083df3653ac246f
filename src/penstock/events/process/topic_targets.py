"""Delivers jobs whose target is a Pub/Sub topic (`topic:NAME`): a message in CloudEvents' binary form."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.delivery import WebhookDelivery, undeliverable
from penstock.domain.errors import InvalidArgument, PenstockError
from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.domain.outcome import MediationOutcome, MediationResult, NetworkError
from penstock.domain.replay import original_id
from penstock.domain.signing import ID_HEADER
from penstock.edge.clock import stopwatch
from penstock.events.fields import full_topic_name

if TYPE_CHECKING:
    from penstock.events.topics import TopicClient

PREFIX = "topic:"
_NO_SERVER = "this process knows no Pub/Sub server: start it with --topics HOST:PORT or set jobs.topics"
_NAME = re.compile(r"(?:projects/[^/\s]+/topics/)?[A-Za-z][\w.~+%-]{2,254}", re.ASCII)


def check_topic_target(target: str) -> None:
    """Raise InvalidArgument for a target that names no topic."""
    if _NAME.fullmatch(target.removeprefix(PREFIX)) is None:
        raise InvalidArgument(
            f"{target!r} names no topic: write topic:NAME or topic:projects/PROJECT/topics/NAME, a name of 3 to 255 "
            "letters, digits and -_.~+% that begins with a letter"
        )


class TopicTargets:
    """Publishes jobs to the topics of one server; `topics` is None in a process that knows none."""

    def __init__(self, topics: "TopicClient | None" = None) -> None:
        self._topics = topics

    def refusal(self) -> str | None:
        """Return why nothing is delivered; None with a server."""
        return _NO_SERVER if self._topics is None else None

    async def deliver(self, job: DispatchJob, event: StoredEvent | None) -> WebhookDelivery:
        """Publish a job's event, or its payload, in order per key; the topic is created if it does not exist."""
        topic = full_topic_name(job.target.removeprefix(PREFIX))
        if event is not None and event.source.endswith(f"/{topic}"):
            return undeliverable(f"the event came from the topic {topic} and would feed itself")
        if self._topics is None:
            return failed(_NO_SERVER)
        data = (job.payload or b"") if event is None else event.data
        key = job.group if event is None else event.group
        started_s = stopwatch()
        try:
            await self._topics.publish(topic, data, _attributes(job, event), key or "")
        except InvalidArgument as error:
            return undeliverable(error.message)
        except PenstockError as error:
            return failed(error.message, elapsed_ms(started_s))
        return WebhookDelivery(MediationOutcome(MediationResult.SUCCESS), elapsed_ms(started_s))


def _attributes(job: DispatchJob, event: StoredEvent | None) -> dict[str, str]:
    """Return what receivers know a message by; the same for every attempt and every replay."""
    attributes = {ID_HEADER: original_id(job.id), "content-type": job.content_type}
    if event is None:
        return attributes
    named = {
        **event.attributes,
        "specversion": "1.0",
        "id": event.cloud_id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": None if event.time_ms is None else datetime.fromtimestamp(event.time_ms / 1000, UTC).isoformat(),
        "partitionkey": event.group,
        "tenant": event.tenant or None,
    }
    return attributes | {f"ce-{name}": value for name, value in named.items() if value is not None}


def failed(detail: str, duration_ms: int = 0) -> WebhookDelivery:
    """Return the result of a delivery that is worth another attempt."""
    return WebhookDelivery(MediationOutcome(MediationResult.ERROR_CONNECTION, error=NetworkError(detail)), duration_ms)


def elapsed_ms(started_s: float) -> int:
    """Return the time since a reading of the stopwatch."""
    return round((stopwatch() - started_s) * 1000)
