"""Pub/Sub on several nodes: any node takes any call, and passes it on to the one that owns the topics."""

from penstock.pubsub.nodes.server import PubsubNodeSettings, serve_pubsub_node

__all__ = ["PubsubNodeSettings", "serve_pubsub_node"]
