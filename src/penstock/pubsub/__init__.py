"""The Google Pub/Sub front: its v1 gRPC API over the broker, for Google's own clients unchanged."""
