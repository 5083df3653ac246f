"""The Publisher service: topics, and publishing to them."""

import asyncio
from collections.abc import Callable, Sequence

from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]
from google.pubsub_v1 import types

from penstock.broker import AsyncBroker, InternalMessage, TopicNotFound
from penstock.domain.message import NO_ATTRIBUTES
from penstock.pubsub import wire
from penstock.pubsub.errors import InvalidRequest, ResourceExists
from penstock.pubsub.fields import page, updated
from penstock.pubsub.limits import MAX_ATTRIBUTES, MAX_ORDERING_KEY_BYTES, MAX_PUBLISH_BYTES, MAX_PUBLISH_MESSAGES
from penstock.pubsub.names import project_name, project_of, subscription_name, topic_name
from penstock.pubsub.policies import Policies
from penstock.pubsub.publish.topics import MUTABLE, check_topic, retention_s, stored_topic
from penstock.pubsub.schemas.topics import TopicSchemas
from penstock.pubsub.subscribe.subscriptions import stored_subscription
from penstock.pubsub.wire import GrpcCall, copy_of, encode


class PublisherService:
    """The calls of google.pubsub.v1.Publisher."""

    def __init__(
        self,
        broker: AsyncBroker,
        schemas: TopicSchemas,
        policies: Policies,
        changing: asyncio.Lock,
        on_change: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._schemas = schemas
        self._policies = policies
        self._changing = changing
        self._on_change = on_change

    async def publish(self, request: types.PublishRequest, _: GrpcCall) -> types.PublishResponse:
        """Publish messages to a topic."""
        _check_publish(request)
        messages = _converted(request.messages)
        validator = self._schemas.validator_of(request.topic)
        if validator is not None:
            messages = validator.validated(messages)
        ids = await self._broker.publish(request.topic, messages)
        return wire.PublishResponse(message_ids=ids)

    async def create_topic(self, request: types.Topic, _: GrpcCall) -> types.Topic:
        """Create a topic."""
        name = topic_name(request.name)
        check_topic(request)
        async with self._changing:
            if self._broker.rules.topic(name) is not None:
                raise ResourceExists(name)
            self._schemas.check(request)
            await self._broker.register_topic(name, retention_s=retention_s(request), definition=encode(request))
        return self._shown(name)

    async def update_topic(self, request: types.UpdateTopicRequest, _: GrpcCall) -> types.Topic:
        """Change the masked fields of a topic."""
        name = topic_name(request.topic.name)
        async with self._changing:
            before = stored_topic(self._broker, name)
            topic = updated(before, request.topic, request.update_mask, MUTABLE)
            check_topic(topic)
            if topic.schema_settings != before.schema_settings:
                self._schemas.check(topic)
            await self._broker.update_topic(name, retention_s=retention_s(topic), definition=encode(topic))
        self._schemas.forget(name)
        return self._shown(name)

    async def get_topic(self, request: types.GetTopicRequest, _: GrpcCall) -> types.Topic:
        """Return a topic by its name."""
        return self._shown(topic_name(request.topic))

    async def list_topics(self, request: types.ListTopicsRequest, _: GrpcCall) -> types.ListTopicsResponse:
        """Return the topics of a project."""
        project = project_name(request.project)
        found = [topic for topic in self._broker.rules.topics() if project_of(topic.name) == project]
        shown, token = page(found, lambda topic: topic.name, request.page_size, request.page_token)
        topics = [self._shown(topic.name) for topic in shown]
        return wire.ListTopicsResponse(topics=topics, next_page_token=token)

    async def list_topic_subscriptions(
        self, request: types.ListTopicSubscriptionsRequest, _: GrpcCall
    ) -> types.ListTopicSubscriptionsResponse:
        """Return the names of the subscriptions attached to a topic."""
        found = [each.name for each in self._broker.rules.subscriptions(topic_name(request.topic))]
        names, token = page(found, str, request.page_size, request.page_token)
        return wire.ListTopicSubscriptionsResponse(subscriptions=names, next_page_token=token)

    async def list_topic_snapshots(
        self, request: types.ListTopicSnapshotsRequest, _: GrpcCall
    ) -> types.ListTopicSnapshotsResponse:
        """Return the names of the snapshots of a topic's subscriptions."""
        topic = topic_name(request.topic)
        if self._broker.rules.topic(topic) is None:
            raise TopicNotFound(topic)
        found = [each.name for each in self._broker.replay.snapshots() if each.topic == topic]
        names, token = page(found, str, request.page_size, request.page_token)
        return wire.ListTopicSnapshotsResponse(snapshots=names, next_page_token=token)

    async def delete_topic(self, request: types.DeleteTopicRequest, _: GrpcCall) -> Empty:
        """Remove a topic; its subscriptions stay, detached and empty."""
        name = topic_name(request.topic)
        async with self._changing:
            detached = self._broker.rules.subscriptions(name)
            await self._broker.unregister_topic(name)
            for subscription in detached:
                self._on_change(subscription.name)
            await self._policies.forget(name)
        self._schemas.forget(name)
        return Empty()

    async def detach_subscription(
        self, request: types.DetachSubscriptionRequest, _: GrpcCall
    ) -> types.DetachSubscriptionResponse:
        """Detach a subscription from its topic, and drop its messages."""
        name = subscription_name(request.subscription)
        async with self._changing:
            subscription = self._broker.rules.subscription(name)
            definition = copy_of(stored_subscription(self._broker, name))
            definition.detached = True
            await self._broker.update_subscription(name, subscription.config.options, definition=encode(definition))
            await self._broker.detach_subscription(name)
            self._on_change(name)
        return wire.DetachSubscriptionResponse()

    def _shown(self, name: str) -> types.Topic:
        return self._schemas.shown(stored_topic(self._broker, name))


def _check_publish(request: types.PublishRequest) -> None:
    """Raise InvalidRequest for a request that is empty or too large."""
    count = len(request.messages)
    if not 1 <= count <= MAX_PUBLISH_MESSAGES:
        raise InvalidRequest(f"a publish has 1 to {MAX_PUBLISH_MESSAGES} messages, got {count}; send several")
    size_bytes = request.ByteSize()
    if size_bytes > MAX_PUBLISH_BYTES:
        raise InvalidRequest(f"a publish has at most {MAX_PUBLISH_BYTES} bytes, got {size_bytes}; send several")


def _converted(messages: Sequence[types.PubsubMessage]) -> list[InternalMessage]:
    """Convert the messages of a request; raise InvalidRequest for what the broker does not check."""
    return [_message(message) for message in messages]


def _message(message: types.PubsubMessage) -> InternalMessage:
    data = message.data
    attributes = message.attributes
    if attributes:
        if len(attributes) > MAX_ATTRIBUTES:
            raise InvalidRequest(f"a message has at most {MAX_ATTRIBUTES} attributes, got {len(attributes)}")
    elif not data:
        raise InvalidRequest("a message must have data or at least one attribute")
    key = message.ordering_key
    if key and len(key.encode()) > MAX_ORDERING_KEY_BYTES:
        raise InvalidRequest(f"an ordering key has at most {MAX_ORDERING_KEY_BYTES} bytes, got {len(key.encode())}")
    return InternalMessage(data, dict(attributes) if attributes else NO_ATTRIBUTES, key or None)
