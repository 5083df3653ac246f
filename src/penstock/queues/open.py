"""Creates the source or publisher of a queue URI; a broker's modules are imported only when a URI needs them."""

import msgspec

from penstock.queues.port import Publisher, Source
from penstock.queues.sqs.client import SqsPolling
from penstock.queues.sqs.watch import SharedServers
from penstock.queues.uri import EmbeddedUri, NatsUri, SqsUri, StompUri, queue_uri

DEFAULT_VISIBILITY_S = 30.0


class QueueSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A queue to consume, in the router's configuration."""

    queue_name: str
    queue_uri: str
    connections: int = 1
    # In seconds; None means the queue's own setting, or 30.
    visibility_timeout: int | None = None


def source_for(queue: QueueSpec, sqs: SqsPolling | None = None, servers: SharedServers | None = None) -> Source:
    """Return a source of a queue, not yet opened; raise InvalidQueueUri if the URI is invalid.

    Sources with the same `servers` share connections, and their waits where the server can do that.
    """
    name = queue.queue_name
    visibility_s = float(queue.visibility_timeout or DEFAULT_VISIBILITY_S)
    match queue_uri(queue.queue_uri):
        case SqsUri() as uri:
            from penstock.queues.sqs.source import SqsSource

            return SqsSource(name, uri, visibility_s=queue.visibility_timeout, polling=sqs, servers=servers)
        case EmbeddedUri() as uri:
            from penstock.queues.embedded.source import EmbeddedSource

            return EmbeddedSource(name, uri, visibility_s=visibility_s)
        case NatsUri() as uri:
            from penstock.queues.nats.source import NatsSource

            return NatsSource(name, uri, visibility_s=visibility_s)
        case StompUri() as uri:
            from penstock.queues.activemq.source import ActiveMqSource

            return ActiveMqSource(name, uri)


def publisher_for(uri: str) -> Publisher:
    """Return a publisher to a queue, not yet opened; raise InvalidQueueUri if the URI is invalid."""
    match queue_uri(uri):
        case SqsUri() as parsed:
            from penstock.queues.sqs.publisher import SqsPublisher

            return SqsPublisher(parsed)
        case EmbeddedUri() as parsed:
            from penstock.queues.embedded.source import EmbeddedPublisher

            return EmbeddedPublisher(parsed)
        case NatsUri() as parsed:
            from penstock.queues.nats.publisher import NatsPublisher

            return NatsPublisher(parsed)
        case StompUri() as parsed:
            from penstock.queues.activemq.publisher import ActiveMqPublisher

            return ActiveMqPublisher(parsed)
