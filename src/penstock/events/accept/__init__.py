"""Accepting events: CloudEvents over HTTP, kept once however often they are sent."""

from penstock.events.accept.routes import EventRoutes

__all__ = [
    "EventRoutes",
]
