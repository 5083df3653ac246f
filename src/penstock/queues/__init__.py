"""Queues that the router consumes and the dispatcher publishes to: SQS, NATS, ActiveMQ, and an embedded one."""

from penstock.queues.open import QueueSpec, creates_itself, publisher_for, source_for
from penstock.queues.pool_names import pool_queue, pool_queue_name
from penstock.queues.pool_publisher import PoolPublisher
from penstock.queues.port import Confirmation, Publication, Publisher, Received, Source, confirmed
from penstock.queues.uri import queue_uri

__all__ = [
    "Confirmation",
    "PoolPublisher",
    "Publication",
    "Publisher",
    "QueueSpec",
    "Received",
    "Source",
    "confirmed",
    "creates_itself",
    "pool_queue",
    "pool_queue_name",
    "publisher_for",
    "queue_uri",
    "source_for",
]
