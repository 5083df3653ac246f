"""Topics and subscriptions: each topic is a stream, and each subscription a queue of the engine."""

from penstock.broker.async_broker import AsyncBroker
from penstock.broker.errors import SubscriptionDetached, SubscriptionNotFound, TopicNotFound
from penstock.broker.message import InternalMessage
from penstock.broker.message_queue import MessageQueue
from penstock.broker.options import (
    DeadLetterPolicy,
    FlowControl,
    Overflow,
    SnapshotMetadata,
    SubscriptionMetadata,
    SubscriptionOptions,
    TopicMetadata,
)
from penstock.broker.subscription import BrokerSubscription, ack_id_of
from penstock.domain.retry import RetryPolicy

__all__ = [
    "AsyncBroker",
    "BrokerSubscription",
    "DeadLetterPolicy",
    "FlowControl",
    "InternalMessage",
    "MessageQueue",
    "Overflow",
    "RetryPolicy",
    "SnapshotMetadata",
    "SubscriptionDetached",
    "SubscriptionMetadata",
    "SubscriptionNotFound",
    "SubscriptionOptions",
    "TopicMetadata",
    "TopicNotFound",
    "ack_id_of",
]
