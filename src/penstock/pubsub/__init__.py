"""Google Pub/Sub's v1 gRPC API over the broker, for Google's own clients unchanged."""

from penstock.pubsub.server import PubsubServerSettings, serve_pubsub

__all__ = [
    "PubsubServerSettings",
    "serve_pubsub",
]
