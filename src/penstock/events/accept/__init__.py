"""Accepts events, CloudEvents over HTTP and messages of topics, stored once however often they are sent."""

from penstock.events.accept.cloud_event import MEDIA_TYPES, event_of, is_event_type, members_of
from penstock.events.accept.routes import EventRoutes
from penstock.events.accept.topic_feeds import TopicFeeds

__all__ = [
    "MEDIA_TYPES",
    "EventRoutes",
    "TopicFeeds",
    "event_of",
    "is_event_type",
    "members_of",
]
