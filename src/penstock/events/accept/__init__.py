"""Accepts events: CloudEvents over HTTP, stored once however often they are sent."""

from penstock.events.accept.routes import EventRoutes

__all__ = [
    "EventRoutes",
]
