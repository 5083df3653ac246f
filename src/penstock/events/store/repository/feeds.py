"""Feeds: the Pub/Sub topics whose messages become events."""

import msgspec

from penstock.events.errors import FeedNotFound
from penstock.events.store.database import RepositoryPart, Transaction, reads, writes

_encode = msgspec.json.encode


class TopicFeed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the messages of a topic become events."""

    topic: str
    """Its full name, projects/PROJECT/topics/TOPIC."""
    type: str
    """The type of events from messages without the attribute."""
    type_attribute: str = ""
    """The attribute of messages that has the type of their events; empty for none."""
    tenant: str = ""


_feed = msgspec.json.Decoder(TopicFeed).decode


class FeedRecords(RepositoryPart):
    """Feeds; FeedNotFound for a topic that has none."""

    @writes
    def put_feed(self, tx: Transaction, feed: TopicFeed) -> None:
        """Keep a feed, new or changed."""
        tx.all("put_feed", topic=feed.topic, definition=_encode(feed).decode())

    @writes
    def delete_feed(self, tx: Transaction, topic: str) -> None:
        """Forget the feed of a topic."""
        if not tx.all("delete_feed", topic=topic):
            raise FeedNotFound(topic)

    @reads
    def list_feeds(self, tx: Transaction) -> list[TopicFeed]:
        """Return all feeds, by topic."""
        return [_feed(definition) for (definition,) in tx.all("feeds")]
