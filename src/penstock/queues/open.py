"""Creates the source or publisher of a queue URI; a broker's modules are imported only when a URI needs them."""

import msgspec

from penstock.edge.clock import SystemClock
from penstock.queues.pool_names import pool_queue
from penstock.queues.port import Publisher, Source
from penstock.queues.sqs.client import SqsClient, SqsConnections, SqsPolling
from penstock.queues.sqs.watch import SharedServers
from penstock.queues.uri import EmbeddedUri, NatsUri, QueueUri, SqsUri, StompUri, queue_uri

DEFAULT_VISIBILITY_S = 30.0
# Connections of a process that publishes to one server: a router beside it needs most of those that an address has.
MAX_PUBLISHING = 500


class QueueSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A queue to consume, in the router's configuration."""

    queue_name: str
    queue_uri: str
    connections: int = 1
    # In seconds; None means the queue's own setting, or 30.
    visibility_timeout: int | None = None
    # The URI of the queue whose settings this one gets if it does not exist yet; None: it must exist.
    template: str | None = None


def source_for(queue: QueueSpec, sqs: SqsPolling | None = None, servers: SharedServers | None = None) -> Source:
    """Return a source of a queue, not yet opened; raise InvalidQueueUri if the URI is invalid.

    Sources with the same `servers` share connections, and their waits where the server can do that.
    """
    name = queue.queue_name
    visibility_s = float(queue.visibility_timeout or DEFAULT_VISIBILITY_S)
    template = queue_uri(queue.template) if queue.template else None
    match queue_uri(queue.queue_uri):
        case SqsUri() as uri:
            from penstock.queues.sqs.source import SqsSource

            like = template if isinstance(template, SqsUri) else None
            return SqsSource(
                name, uri, visibility_s=queue.visibility_timeout, polling=sqs, servers=servers, template=like
            )
        case EmbeddedUri() as uri:
            from penstock.queues.embedded.source import EmbeddedSource

            return EmbeddedSource(name, uri, visibility_s=visibility_s)
        case NatsUri() as uri:
            from penstock.queues.nats.source import NatsSource

            like_stream = template if isinstance(template, NatsUri) else None
            return NatsSource(name, uri, visibility_s=visibility_s, template=like_stream)
        case StompUri() as uri:
            from penstock.queues.activemq.source import ActiveMqSource

            return ActiveMqSource(name, uri)


def creates_itself(uri: str) -> bool:
    """Return whether the dispatch queue of this URI is created where it is missing: on SQS servers other than AWS's."""
    parsed = queue_uri(uri)
    return isinstance(parsed, SqsUri) and parsed.region is None


def publisher_for(uri: str) -> Publisher:
    """Return a publisher to a queue, not yet opened; raise InvalidQueueUri if the URI is invalid."""
    return PublisherFactory(uri).shared()


class PublisherFactory:
    """Creates the publishers of a queue, and of the queues of pools, which are created like it."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._parsed = queue_uri(uri)
        self._connections: SqsConnections | None = None
        # Publishers that are not in use cost a thread or a connection each, where they cannot share one.
        self.most_open = 10_000 if isinstance(self._parsed, SqsUri) else 50

    def shared(self) -> Publisher:
        """Return the publisher of the queue itself, not yet opened."""
        return self._publisher(self._parsed, self._parsed if creates_itself(self._uri) else None)

    def of_pool(self, pool: str) -> Publisher:
        """Return the publisher of a pool's queue, not yet opened."""
        return self._publisher(queue_uri(pool_queue(self._uri, pool)), self._parsed)

    async def remove(self, pool: str) -> bool:
        """Remove the queue of a pool if it is empty; return whether it is gone."""
        match queue_uri(pool_queue(self._uri, pool)):
            case SqsUri() as uri:
                return await self._removed(uri)
            case NatsUri() as uri:
                from penstock.queues.nats.connection import NatsConnection

                connection = NatsConnection(uri)
                await connection.open()
                try:
                    return await connection.delete_stream_if_empty()
                finally:
                    await connection.close()
            case _:
                # A queue without messages does not exist there, or the broker removes it.
                return True

    def close(self) -> None:
        """Close the connections that publishers share."""
        if self._connections is not None:
            self._connections.leave()
            self._connections = None

    async def _removed(self, uri: SqsUri) -> bool:
        client = SqsClient(uri, SystemClock(), connections=self._sqs(uri))
        try:
            return await client.delete_if_empty()
        finally:
            client.close()

    def _sqs(self, uri: SqsUri) -> SqsConnections:
        if self._connections is None:
            self._connections = SqsConnections(uri, SqsPolling(), MAX_PUBLISHING)
            self._connections.enter()
        return self._connections

    def _publisher(self, uri: QueueUri, template: QueueUri | None) -> Publisher:
        match uri:
            case SqsUri():
                from penstock.queues.sqs.publisher import SqsPublisher

                like = template if isinstance(template, SqsUri) else None
                own = like is None or like is uri
                return SqsPublisher(uri, connections=None if own else self._sqs(uri), template=like)
            case EmbeddedUri():
                from penstock.queues.embedded.source import EmbeddedPublisher

                return EmbeddedPublisher(uri)
            case NatsUri():
                from penstock.queues.nats.publisher import NatsPublisher

                return NatsPublisher(uri, template if isinstance(template, NatsUri) else None)
            case StompUri():
                from penstock.queues.activemq.publisher import ActiveMqPublisher

                return ActiveMqPublisher(uri)
