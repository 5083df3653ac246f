"""Topics and subscriptions: each topic a stream, each subscription one queue of the engine."""

from penstock.broker.async_broker import AsyncBroker
from penstock.broker.message import InternalMessage
from penstock.broker.message_queue import MessageQueue
from penstock.broker.options import (
    DeadLetterPolicy,
    FlowControl,
    Overflow,
    SubscriptionMetadata,
    SubscriptionOptions,
    TopicMetadata,
)
from penstock.domain.retry import RetryPolicy

__all__ = [
    "AsyncBroker",
    "DeadLetterPolicy",
    "FlowControl",
    "InternalMessage",
    "MessageQueue",
    "Overflow",
    "RetryPolicy",
    "SubscriptionMetadata",
    "SubscriptionOptions",
    "TopicMetadata",
]
