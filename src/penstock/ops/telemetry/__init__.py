"""What a served part tells about itself: logs, metrics, health probes, and the server that answers them."""
