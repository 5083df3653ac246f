"""Publishes the events of jobs in ERROR to the dead-letter topics of their subscriptions.

Loaded only by a process that has a broker, because Google's library takes longer to load than all of the API.
"""

import logging
from types import TracebackType

import grpc  # type: ignore[import-untyped]
from google.pubsub_v1 import types

from penstock.delivery import envelope_of
from penstock.domain.errors import Unavailable
from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob

log = logging.getLogger(__name__)
PROJECT = "penstock"
TIMEOUT_S = 10.0
_PUBLISH = "/google.pubsub.v1.Publisher/Publish"
_CREATE = "/google.pubsub.v1.Publisher/CreateTopic"


class PubsubDeadLetters:
    """Publishes to a Pub/Sub server, Penstock's own or another; creates a topic that does not exist."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel = grpc.aio.insecure_channel(address)
        self._publish = self._channel.unary_unary(
            _PUBLISH,
            request_serializer=types.PublishRequest.serialize,
            response_deserializer=types.PublishResponse.deserialize,
        )
        self._create = self._channel.unary_unary(
            _CREATE, request_serializer=types.Topic.serialize, response_deserializer=types.Topic.deserialize
        )

    async def __aenter__(self) -> "PubsubDeadLetters":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def publish(self, topic: str, job: DispatchJob, event: StoredEvent | None, reason: str) -> None:
        """Publish a copy to a topic; Unavailable if that fails."""
        name = topic if topic.startswith("projects/") else f"projects/{PROJECT}/topics/{topic}"
        message = types.PubsubMessage(
            data=envelope_of(job, event).body,
            attributes={"penstock-job": job.id, "penstock-reason": reason[:1024], "penstock-group": job.group_key},
            ordering_key=job.group_key,
        )
        request = types.PublishRequest(topic=name, messages=[message])
        try:
            await self._publish_to(name, request)
        except grpc.aio.AioRpcError as error:
            raise Unavailable(
                f"cannot publish to the dead-letter topic {name} at {self._address}: {error.details()}"
            ) from error

    async def _publish_to(self, name: str, request: types.PublishRequest) -> None:
        try:
            await self._publish(request, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            log.warning("the dead-letter topic %s does not exist and is created", name)
            await self._create_topic(name)
            await self._publish(request, timeout=TIMEOUT_S)

    async def _create_topic(self, name: str) -> None:
        try:
            await self._create(types.Topic(name=name), timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            # Another process created it first.
            if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
                raise
