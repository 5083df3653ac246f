"""NATS JetStream as a queue."""
