"""Feeds events from Pub/Sub topics: every message becomes an event once, in order per ordering key (EVENT-ACCEPT-5).

A feed has a subscription of its own at the Pub/Sub server, which keeps messages until their events are stored. Messages
that come again, because a process died before it acknowledged them, are known by their ids.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from penstock.client.types import CloudEvent
from penstock.domain.errors import PenstockError
from penstock.domain.event import StoredEvent
from penstock.domain.message import NO_ATTRIBUTES
from penstock.domain.retry import Backoff
from penstock.edge.pause import Pause
from penstock.events.accept.cloud_event import MOST_EXTENSION_CHARS, MOST_EXTENSIONS, is_event_type
from penstock.events.fan_out import EventPublisher
from penstock.events.store import JobRepository, TopicFeed

if TYPE_CHECKING:
    from google.pubsub_v1 import types

    from penstock.events.topics import TopicClient

log = logging.getLogger(__name__)
_LOOK_S = 5.0
_FIRST_PAUSE_S = 0.2
_LAST_PAUSE_S = 10.0
_MOST_NAME_CHARS = 256
_DIGEST_CHARS = 16
_CONTENT_TYPES = ("content-type", "datacontenttype")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MEMBERS = frozenset(CloudEvent.__struct_fields__)


class TopicFeeds:
    """Keeps all feeds of a database running. Several processes may do so: each message is stored by the first."""

    def __init__(
        self,
        topics: "TopicClient",
        repository: JobRepository,
        publisher: EventPublisher,
        new_id: Callable[[], str],
        pause: Pause,
    ) -> None:
        self._topics = topics
        self._repository = repository
        self._publisher = publisher
        self._new_id = new_id
        self._pause = pause
        self._changed = asyncio.Event()
        self._running: dict[TopicFeed, asyncio.Task[None]] = {}

    async def start(self, feed: TopicFeed) -> None:
        """Begin to keep a topic's messages, and store the feed; messages published from now on become events."""
        await self._topics.follow(feed.topic, subscription_of(feed.topic))
        await self._repository.put_feed(feed)
        self._changed.set()

    async def stop(self, topic: str) -> None:
        """Forget a feed; messages that are not events yet become none."""
        await self._repository.delete_feed(topic)
        self._changed.set()
        await self._topics.unfollow(subscription_of(topic))

    async def run(self) -> None:
        """Run the feeds that the database has, until cancelled; other processes may change them."""
        try:
            while True:
                self._changed.clear()
                await self._follow_changes()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._changed.wait()
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _follow_changes(self) -> None:
        try:
            feeds = set(await self._repository.list_feeds())
        except PenstockError as error:
            log.warning("cannot read the feeds: %s", error)
            return
        for feed in self._running.keys() - feeds:
            task = self._running.pop(feed)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for feed in feeds - self._running.keys():
            log.info("the topic %s feeds events", feed.topic)
            self._running[feed] = asyncio.create_task(self._feed(feed), name=f"feed {feed.topic}")

    async def _feed(self, feed: TopicFeed) -> None:
        subscription = subscription_of(feed.topic)
        backoff = Backoff(_FIRST_PAUSE_S, _LAST_PAUSE_S)
        while True:
            try:
                await self._topics.follow(feed.topic, subscription)
                while True:
                    received = await self._topics.pull(subscription)
                    if received:
                        await self._accept(feed, subscription, received)
                    backoff.succeeded()
            except PenstockError as error:
                backoff.failed()
                log.warning("the feed of %s stopped and goes on in %g s: %s", feed.topic, backoff.delay_s, error)
                await self._pause(backoff.delay_s)

    async def _accept(self, feed: TopicFeed, subscription: str, received: "Sequence[types.ReceivedMessage]") -> None:
        ack_ids = [each.ack_id for each in received]
        events = [event_of_message(feed, each.message, self._new_id()) for each in received]
        try:
            await self._publisher.publish(events)
        except BaseException:
            # Of a process that ends, too: the next one need not wait until the leases have expired.
            with suppress(PenstockError):
                await self._topics.give_back(subscription, ack_ids)
            raise
        await self._topics.settle(subscription, ack_ids)


def subscription_of(topic: str) -> str:
    """Return the subscription with which a topic feeds events."""
    project, _, name = topic.rpartition("/topics/")
    return f"{project}/subscriptions/penstock-feed-{name}"


def event_of_message(feed: TopicFeed, message: "types.PubsubMessage", event_id: str) -> StoredEvent:
    """Return the event that a message becomes. There is one for every message, whatever it contains."""
    attributes = dict(message.attributes)
    published_ms = int(message.publish_time.timestamp() * 1000)
    given = attributes.get(feed.type_attribute, "")
    return StoredEvent(
        id=event_id,
        source=f"//pubsub.googleapis.com/{feed.topic}",
        type=given if is_event_type(given) else feed.type,
        # The server's time: its messages are in order by it, whichever process stores them.
        received_ms=published_ms,
        external_id=message.message_id,
        time_ms=published_ms,
        data=message.data,
        content_type=_content_type(attributes, message.data),
        group=_key(message.ordering_key) or None,
        tenant=feed.tenant,
        attributes=_extensions(attributes) or NO_ATTRIBUTES,
    )


def _key(text: str) -> str:
    """Return a key that the API can show; different ordering keys give different ones."""
    shown = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    if shown == text and len(text) <= _MOST_NAME_CHARS:
        return text
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{shown[: _MOST_NAME_CHARS - _DIGEST_CHARS - 1]}~{digest}"


def _content_type(attributes: Mapping[str, str], data: bytes) -> str:
    given = next((attributes[name] for name in _CONTENT_TYPES if attributes.get(name)), "")
    if given and len(given) <= _MOST_NAME_CHARS and _CONTROL.search(given) is None:
        return given
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "application/octet-stream" if data else "application/json"
    return "application/json"


def _extensions(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return attributes by names that CloudEvents allows: small letters and digits; others are left out."""
    found: dict[str, str] = {}
    for name, value in sorted(attributes.items()):
        allowed = _NOT_IN_NAMES.sub("", name.lower())[:64]
        if allowed and allowed not in _MEMBERS and len(found) < MOST_EXTENSIONS:
            text = value.replace("\0", "\N{REPLACEMENT CHARACTER}")[:MOST_EXTENSION_CHARS]
            found.setdefault(allowed, text)
    return found
