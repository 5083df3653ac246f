"""All Pub/Sub services over one broker, and their periodic work."""

import asyncio
import logging

from penstock.broker import AsyncBroker
from penstock.delivery import Client
from penstock.domain.errors import PenstockError
from penstock.domain.ids import TsidFactory
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.pubsub import wire
from penstock.pubsub.metrics import PubsubMetrics
from penstock.pubsub.policies import Policies
from penstock.pubsub.publish.publisher import PublisherService
from penstock.pubsub.push.pushers import Pushers
from penstock.pubsub.schemas.service import SchemaService
from penstock.pubsub.schemas.store import SchemaStore
from penstock.pubsub.schemas.topics import TopicSchemas
from penstock.pubsub.subscribe.delivery import Acks
from penstock.pubsub.subscribe.snapshots import Snapshots
from penstock.pubsub.subscribe.streaming_pull import PullStream, StreamCall
from penstock.pubsub.subscribe.subscriber import SubscriberService
from penstock.pubsub.subscribe.subscriptions import expires_after_s
from penstock.pubsub.wire import decode

log = logging.getLogger(__name__)


class PubsubServices:
    """The services of one server."""

    def __init__(self, broker: AsyncBroker, client: Client, clock: Clock, ids: TsidFactory, *, durable: bool) -> None:
        self._broker = broker
        self._clock = clock
        self._streams: set[PullStream] = set()
        # Definitions change one at a time: nothing that a call has checked changes before it is done.
        changing = asyncio.Lock()
        store = SchemaStore(broker, clock, ids)
        topic_schemas = TopicSchemas(broker, store)
        self._acks = Acks(broker)
        self.policies = Policies(broker, store)
        self.pushers = Pushers(broker, client, clock)
        self.publisher = PublisherService(broker, topic_schemas, self.policies, changing, self._on_change)
        self.subscriber = SubscriberService(
            broker, self._acks, self.policies, changing, self._on_change, durable=durable
        )
        self.snapshots = Snapshots(broker, clock, self.policies, changing)
        self.schemas = SchemaService(store, topic_schemas, self.policies, changing)
        self.metrics = PubsubMetrics(broker, self.pushers.counts)
        self._stopping = False

    @property
    def last_failure(self) -> str | None:
        """Why the latest commit failed; None if it succeeded."""
        return self._broker.last_failure

    async def streaming_pull(self, call: StreamCall) -> None:
        """Serve one stream until it ends."""
        first = await call.read()
        if not isinstance(first, wire.StreamingPullRequest):
            return
        stream = PullStream(self._broker, self._acks, self._clock, first, call)
        if self._stopping:
            stream.stop()
        self._streams.add(stream)
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)

    def stop_waiting(self) -> None:
        """End the streams, stop pushing, and return nothing to waiting pulls, before a stop."""
        self._stopping = True
        self.pushers.stop()
        self._broker.answer_waiters()
        for stream in self._streams:
            stream.stop()

    async def sweep(self) -> None:
        """Drop expired subscriptions, snapshots and retained messages; meant to run about once a minute."""
        used = {stream.subscription_name for stream in self._streams}
        for metadata in self._broker.rules.subscriptions():
            if metadata.name not in used and self._is_expired(metadata.name):
                log.info("an unused subscription expired", extra={"queue": metadata.name})
                await self.subscriber.drop(metadata.name)
        await self._broker.sweep()

    async def sweep_or_log(self) -> None:
        """Do the same, but log an error instead of raising it."""
        try:
            await self.sweep()
        except PenstockError as error:
            log.error("cannot drop expired subscriptions, snapshots and messages: %s", error)

    def _on_change(self, name: str) -> None:
        """Start or stop pushing a subscription after a change, and let its waiting receivers check it again."""
        if self.pushers.update(name):
            self._broker.answer_waiters_of(name)
            for stream in self._streams:
                if stream.subscription_name == name:
                    stream.recheck()

    def _is_expired(self, name: str) -> bool:
        subscription = self._broker.rules.subscription(name)
        definition = decode(wire.Subscription, subscription.config.definition)
        idle_s = expires_after_s(definition)
        if idle_s is None or definition.push_config.push_endpoint:
            return False
        return subscription.active_ms + idle_s * SECOND_MS <= self._clock.now_ms()
