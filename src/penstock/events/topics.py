"""The client of a Pub/Sub server, Penstock's own or another: publishes to topics, and takes messages in order.

Loaded only by a process that has such a server, because Google's library takes longer to load than all of the API.
"""

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.protobuf.duration_pb2 import Duration  # type: ignore[import-untyped]
from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]
from google.pubsub_v1 import types

from penstock.domain.errors import InvalidArgument, NotFound, PenstockError, Unavailable
from penstock.domain.limits import MIB
from penstock.events.fields import full_topic_name

log = logging.getLogger(__name__)
FEED_LABELS = {"penstock-feed": "events"}
_TIMEOUT_S = 10.0
_PULL_S = 30.0
_MOST_AT_ONCE = 1000
# Short, since the messages of a process that died wait for it; one that expires too early only repeats some work.
_ACK_DEADLINE_S = 10
_RETENTION_S = 31 * 24 * 60 * 60
# A response has as many messages as the server gives, each up to 10 MB.
_OPTIONS = (("grpc.max_receive_message_length", 64 * MIB), ("grpc.max_reconnect_backoff_ms", 2000))
_ERRORS = {grpc.StatusCode.NOT_FOUND: NotFound, grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument}


class TopicClient:
    """Calls of one server. NotFound, InvalidArgument or Unavailable if it does not do what it is asked to."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        publisher, subscriber = "/google.pubsub.v1.Publisher", "/google.pubsub.v1.Subscriber"
        self._publish = self._call(f"{publisher}/Publish", types.PublishRequest, types.PublishResponse)
        self._create_topic = self._call(f"{publisher}/CreateTopic", types.Topic, types.Topic)
        self._subscribe = self._call(f"{subscriber}/CreateSubscription", types.Subscription, types.Subscription)
        self._unsubscribe = self._call(f"{subscriber}/DeleteSubscription", types.DeleteSubscriptionRequest, None)
        self._pull = self._call(f"{subscriber}/Pull", types.PullRequest, types.PullResponse)
        self._acknowledge = self._call(f"{subscriber}/Acknowledge", types.AcknowledgeRequest, None)
        self._set_deadline = self._call(f"{subscriber}/ModifyAckDeadline", types.ModifyAckDeadlineRequest, None)

    async def __aenter__(self) -> "TopicClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def publish(self, topic: str, message: types.PubsubMessage) -> None:
        """Publish to a topic, which is created if it does not exist."""
        name = full_topic_name(topic)
        request = types.PublishRequest(topic=name, messages=[message])
        try:
            await self._do(self._publish, request, f"publish to the topic {name}")
        except NotFound:
            log.warning("the topic %s does not exist and is created", name)
            await self._create(self._create_topic, types.Topic(name=name), f"create the topic {name}")
            await self._do(self._publish, request, f"publish to the topic {name}")

    async def follow(self, topic: str, subscription: str) -> None:
        """Create a subscription that keeps the order of keys and never expires, and its topic, unless they exist."""
        await self._create(self._create_topic, types.Topic(name=topic), f"create the topic {topic}")
        wanted = types.Subscription(
            name=subscription,
            topic=topic,
            enable_message_ordering=True,
            ack_deadline_seconds=_ACK_DEADLINE_S,
            message_retention_duration=Duration(seconds=_RETENTION_S),
            expiration_policy=types.ExpirationPolicy(),
            labels=FEED_LABELS,
        )
        await self._create(self._subscribe, wanted, f"subscribe to the topic {topic}")

    async def unfollow(self, subscription: str) -> None:
        """Delete a subscription, if it exists."""
        request = types.DeleteSubscriptionRequest(subscription=subscription)
        try:
            await self._do(self._unsubscribe, request, f"delete the subscription {subscription}")
        except NotFound:
            return

    async def pull(self, subscription: str) -> Sequence[types.ReceivedMessage]:
        """Wait for messages, up to half a minute; NotFound if the subscription does not exist."""
        request = types.PullRequest(subscription=subscription, max_messages=_MOST_AT_ONCE)
        response = await self._do(self._pull, request, f"pull from {subscription}", _PULL_S)
        return list(response.received_messages)

    async def settle(self, subscription: str, ack_ids: Sequence[str]) -> None:
        """Acknowledge messages."""
        request = types.AcknowledgeRequest(subscription=subscription, ack_ids=ack_ids)
        await self._do(self._acknowledge, request, f"acknowledge messages of {subscription}")

    async def give_back(self, subscription: str, ack_ids: Sequence[str]) -> None:
        """Return messages, so that they come again at once."""
        request = types.ModifyAckDeadlineRequest(subscription=subscription, ack_ids=ack_ids, ack_deadline_seconds=0)
        await self._do(self._set_deadline, request, f"return messages to {subscription}")

    def _call(self, path: str, request: Any, response: Any) -> Any:
        reading = Empty.FromString if response is None else response.deserialize
        return self._channel.unary_unary(path, request_serializer=request.serialize, response_deserializer=reading)

    async def _create(self, call: Any, request: Any, doing: str) -> None:
        try:
            await call(request, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
                raise self._failure(error, doing) from error

    async def _do(self, call: Any, request: Any, doing: str, timeout_s: float = _TIMEOUT_S) -> Any:
        try:
            return await call(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._failure(error, doing) from error

    def _failure(self, error: grpc.aio.AioRpcError, doing: str) -> PenstockError:
        kind = _ERRORS.get(error.code(), Unavailable)
        return kind(f"cannot {doing} at {self.address}: {error.details()}")
