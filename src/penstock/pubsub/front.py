"""The front as a whole: all services over one broker, and what they do by themselves as time passes."""

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
from penstock.pubsub.subscribe.streaming import PullStream, StreamCall
from penstock.pubsub.subscribe.subscriber import SubscriberService
from penstock.pubsub.subscribe.subscriptions import expires_after_s
from penstock.pubsub.wire import decode

log = logging.getLogger(__name__)


class PubsubFront:
    """The services of one server."""

    def __init__(self, broker: AsyncBroker, client: Client, clock: Clock, ids: TsidFactory, *, durable: bool) -> None:
        self._broker = broker
        self._clock = clock
        self._streams: set[PullStream] = set()
        # Definitions change one at a time: what one call checks, no other changes before it is done.
        changing = asyncio.Lock()
        store = SchemaStore(broker, clock, ids)
        topic_schemas = TopicSchemas(broker, store)
        self._acks = Acks(broker)
        self.policies = Policies(broker, store)
        self.pushers = Pushers(broker, client, clock)
        self.publisher = PublisherService(broker, topic_schemas, self.policies, changing, self._redirect)
        self.subscriber = SubscriberService(
            broker, self._acks, self.policies, changing, self._redirect, durable=durable
        )
        self.snapshots = Snapshots(broker, clock, self.policies, changing)
        self.schemas = SchemaService(store, topic_schemas, self.policies, changing)
        self.metrics = PubsubMetrics(broker, self.pushers.counts)
        self._stopping = False

    @property
    def last_failure(self) -> str | None:
        """Why the latest commit was refused; None when it was not."""
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
        """Before a stop: end the streams, push no more, and answer waiting pulls with nothing."""
        self._stopping = True
        self.pushers.stop()
        self._broker.answer_waiters()
        for stream in self._streams:
            stream.stop()

    async def sweep(self) -> None:
        """Drop what has expired: subscriptions nobody uses, snapshots, what was retained; once a minute will do."""
        used = {stream.subscription_name for stream in self._streams}
        for metadata in self._broker.rules.subscriptions():
            if metadata.name not in used and self._is_expired(metadata.name):
                log.info("subscription expired, nobody used it", extra={"queue": metadata.name})
                await self.subscriber.drop(metadata.name)
        await self._broker.sweep()

    async def sweep_or_log(self) -> None:
        """The same, when nobody is there to be told of an error."""
        try:
            await self.sweep()
        except PenstockError as error:
            log.error("cannot drop what has expired: %s", error)

    def _redirect(self, name: str) -> None:
        """A subscription may be pushed from now on, or no more: whoever waits for its messages looks again."""
        if self.pushers.follow(name):
            self._broker.answer_waiters_of(name)
            for stream in self._streams:
                if stream.subscription_name == name:
                    stream.look_again()

    def _is_expired(self, name: str) -> bool:
        subscription = self._broker.rules.subscription(name)
        definition = decode(wire.Subscription, subscription.config.definition)
        idle_s = expires_after_s(definition)
        if idle_s is None or definition.push_config.push_endpoint:
            return False
        return subscription.active_ms + idle_s * SECOND_MS <= self._clock.now_ms()
