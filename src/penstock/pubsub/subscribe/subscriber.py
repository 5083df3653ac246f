"""The Subscriber service: subscriptions, and consuming them."""

import asyncio
from collections.abc import Callable

from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]
from google.pubsub_v1 import types

from penstock.broker import AsyncBroker, BrokerSubscription, TopicNotFound
from penstock.domain.limits import MIB
from penstock.pubsub import wire
from penstock.pubsub.errors import InvalidRequest, ResourceExists, StaleAckIds
from penstock.pubsub.fields import page, updated
from penstock.pubsub.names import project_name, project_of, subscription_name, topic_name
from penstock.pubsub.policies import Policies
from penstock.pubsub.subscribe.delivery import Acks, deliver, exactly_once
from penstock.pubsub.subscribe.subscriptions import (
    MUTABLE,
    check_push_endpoint,
    normalized_subscription,
    options_of,
    pulled_subscription,
    shown_subscription,
    stored_subscription,
)
from penstock.pubsub.wire import GrpcCall, encode, has

_PULL_MESSAGES = 1000
_PULL_BYTES = 2 * MIB
_PULL_WAIT_S = 20.0
# A caller that gives up during the answer would leave messages leased that no one has.
_MARGIN_S = 0.3


class SubscriberService:
    """The calls of google.pubsub.v1.Subscriber, except streaming, seeking and snapshots."""

    def __init__(
        self,
        broker: AsyncBroker,
        acks: Acks,
        policies: Policies,
        changing: asyncio.Lock,
        on_change: Callable[[str], None],
        *,
        durable: bool,
    ) -> None:
        self._broker = broker
        self._acks = acks
        self._policies = policies
        self._changing = changing
        self._on_change = on_change
        self._durable = durable

    async def pull(self, request: types.PullRequest, call: GrpcCall) -> types.PullResponse:
        """Lease messages; if there are none, wait for a while unless asked not to."""
        if request.max_messages < 1:
            raise InvalidRequest(f"max_messages must be at least 1, got {request.max_messages}")
        subscription = pulled_subscription(self._broker, request.subscription)
        entries = await self._broker.lease(
            subscription,
            min(request.max_messages, _PULL_MESSAGES),
            max_bytes=_PULL_BYTES,
            wait_s=0.0 if request.return_immediately else _wait_s(call),
        )
        if not entries:
            pulled_subscription(self._broker, request.subscription)
        response = wire.PullResponse()
        deliver(subscription, entries, response.received_messages)
        return response

    async def acknowledge(self, request: types.AcknowledgeRequest, _: GrpcCall) -> Empty:
        """Settle deliveries."""
        subscription = self._subscription(request.subscription)
        if not request.ack_ids:
            raise InvalidRequest("ack_ids must name at least one delivery")
        _raise_if_stale(subscription, await self._acks.settle(subscription, request.ack_ids))
        return Empty()

    async def modify_ack_deadline(self, request: types.ModifyAckDeadlineRequest, _: GrpcCall) -> Empty:
        """Change the deadline of deliveries, from now, or give them back."""
        subscription = self._subscription(request.subscription)
        if not request.ack_ids:
            raise InvalidRequest("ack_ids must name at least one delivery")
        seconds = request.ack_deadline_seconds
        stale = self._acks.set_deadlines(subscription, [(ack_id, seconds) for ack_id in request.ack_ids])
        _raise_if_stale(subscription, stale)
        return Empty()

    async def create_subscription(self, request: types.Subscription, _: GrpcCall) -> types.Subscription:
        """Create a subscription; it gets messages published from now on."""
        name = subscription_name(request.name)
        topic = topic_name(request.topic)
        subscription = normalized_subscription(request)
        subscription.detached = False
        async with self._changing:
            if self._broker.rules.find_subscription(name) is not None:
                raise ResourceExists(name)
            self._check_dead_letter_topic(subscription)
            options = options_of(subscription, durable=self._durable)
            await self._broker.register_subscription(name, topic, options, definition=encode(subscription))
            self._on_change(name)
        return stored_subscription(self._broker, name)

    async def get_subscription(self, request: types.GetSubscriptionRequest, _: GrpcCall) -> types.Subscription:
        """Return a subscription by its name."""
        return stored_subscription(self._broker, subscription_name(request.subscription))

    async def list_subscriptions(
        self, request: types.ListSubscriptionsRequest, _: GrpcCall
    ) -> types.ListSubscriptionsResponse:
        """Return the subscriptions of a project."""
        project = project_name(request.project)
        found = [each for each in self._broker.rules.subscriptions() if project_of(each.name) == project]
        taken, token = page(found, lambda each: each.name, request.page_size, request.page_token)
        shown = [shown_subscription(self._broker, each) for each in taken]
        return wire.ListSubscriptionsResponse(subscriptions=shown, next_page_token=token)

    async def update_subscription(self, request: types.UpdateSubscriptionRequest, _: GrpcCall) -> types.Subscription:
        """Change the masked fields of a subscription."""
        name = subscription_name(request.subscription.name)
        async with self._changing:
            before = stored_subscription(self._broker, name)
            await self._put(name, updated(before, request.subscription, request.update_mask, MUTABLE))
        return stored_subscription(self._broker, name)

    async def modify_push_config(self, request: types.ModifyPushConfigRequest, _: GrpcCall) -> Empty:
        """Post messages to another endpoint from now on, or let them be pulled."""
        name = subscription_name(request.subscription)
        check_push_endpoint(request.push_config)
        async with self._changing:
            subscription = stored_subscription(self._broker, name)
            subscription.push_config.CopyFrom(request.push_config)
            await self._put(name, subscription)
        return Empty()

    async def delete_subscription(self, request: types.DeleteSubscriptionRequest, _: GrpcCall) -> Empty:
        """Remove a subscription with its messages."""
        await self.drop(subscription_name(request.subscription))
        return Empty()

    async def drop(self, name: str) -> None:
        """Remove a subscription that was deleted or has expired."""
        async with self._changing:
            await self._broker.unregister_subscription(name)
            self._on_change(name)
            await self._policies.forget(name)

    def _subscription(self, name: str) -> BrokerSubscription:
        return self._broker.rules.subscription(name)

    async def _put(self, name: str, subscription: types.Subscription) -> None:
        subscription = normalized_subscription(subscription)
        self._check_dead_letter_topic(subscription)
        options = options_of(subscription, durable=self._durable)
        await self._broker.update_subscription(name, options, definition=encode(subscription))
        self._on_change(name)

    def _check_dead_letter_topic(self, subscription: types.Subscription) -> None:
        if has(subscription, "dead_letter_policy"):
            topic = subscription.dead_letter_policy.dead_letter_topic
            if self._broker.rules.topic(topic) is None:
                raise TopicNotFound(topic)


def _wait_s(call: GrpcCall) -> float:
    remaining_s = call.time_remaining()
    return _PULL_WAIT_S if remaining_s is None else max(0.0, min(_PULL_WAIT_S, remaining_s - _MARGIN_S))


def _raise_if_stale(subscription: BrokerSubscription, stale: list[str]) -> None:
    if stale and exactly_once(subscription):
        raise StaleAckIds(stale)
