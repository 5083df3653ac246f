"""Delivers jobs whose target is an SQS queue (`sqs:NAME`): a message with the CloudEvent, or with the job's payload."""

import re
from urllib.parse import urlsplit

from penstock.delivery import WebhookDelivery, envelope_of, undeliverable
from penstock.domain.errors import InvalidArgument, PenstockError, Unavailable
from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.domain.outcome import MediationOutcome, MediationResult
from penstock.domain.replay import original_id
from penstock.edge.clock import stopwatch
from penstock.events.process.topic_targets import elapsed_ms, failed
from penstock.queues import Publication, Publisher, publisher_for

PREFIX = "sqs:"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_OF_DISPATCH = re.compile(r"dispatch(-.*)?\.fifo")
_NO_ACCOUNT = "000000000000"
_NO_SERVER = "this process knows no SQS server: start it with --queues URL or set api.queues"


def check_queue_target(target: str) -> None:
    """Raise InvalidArgument for a target that names no queue, or one of Penstock's own."""
    name = target.removeprefix(PREFIX)
    if _NAME.fullmatch(name) is None:
        raise InvalidArgument(
            f"{target!r} names no queue: write sqs:NAME, a name of up to 80 letters, digits, - and _, with .fifo at "
            "the end for a queue that keeps the order of keys"
        )
    if _OF_DISPATCH.fullmatch(name) is not None:
        raise InvalidArgument(f"{name!r} is a queue between Penstock's dispatcher and its routers: choose another name")


class QueueTargets:
    """Sends to queues of one SQS server, which are created if they do not exist; an empty URL stands for no server."""

    def __init__(self, server_url: str = "") -> None:
        self._server_url = server_url.rstrip("/")
        self._publishers: dict[str, Publisher] = {}

    def refusal(self) -> str | None:
        """Return why nothing is delivered; None with a server."""
        return None if self._server_url else _NO_SERVER

    async def deliver(self, job: DispatchJob, event: StoredEvent | None) -> WebhookDelivery:
        """Send a job's event, or its payload; in a FIFO queue the group is the key, another attempt adds no copy."""
        started_s = stopwatch()
        try:
            await self.send(job.target.removeprefix(PREFIX), job, event)
        except InvalidArgument as error:
            return undeliverable(error.message)
        except PenstockError as error:
            return failed(error.message, elapsed_ms(started_s))
        return WebhookDelivery(MediationOutcome(MediationResult.SUCCESS), elapsed_ms(started_s))

    async def send(self, name: str, job: DispatchJob, event: StoredEvent | None) -> None:
        """Send to a queue; raise a PenstockError if that fails."""
        publisher = self._publisher(name)
        key = job.group if event is None else event.group
        # Without a key there is no order to keep; a FIFO queue needs a group all the same.
        group = key or (job.id if name.endswith(".fifo") else None)
        (error,) = await publisher.publish([Publication(envelope_of(job, event).body, group, original_id(job.id))])
        if error is not None:
            raise error

    async def close(self) -> None:
        """Close the connections."""
        for publisher in self._publishers.values():
            await publisher.close()

    def _publisher(self, name: str) -> Publisher:
        if not self._server_url:
            raise Unavailable(_NO_SERVER)
        publisher = self._publishers.get(name)
        if publisher is None:
            account = "" if urlsplit(self._server_url).path else f"/{_NO_ACCOUNT}"
            publisher = self._publishers[name] = publisher_for(f"{self._server_url}{account}/{name}")
        return publisher
