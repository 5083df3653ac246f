"""Accepts events: CloudEvents over HTTP, stored once however often they are sent."""

from penstock.events.accept.cloud_event import MEDIA_TYPES, event_of, members_of
from penstock.events.accept.routes import EventRoutes

__all__ = [
    "MEDIA_TYPES",
    "EventRoutes",
    "event_of",
    "members_of",
]
