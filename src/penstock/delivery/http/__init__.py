"""The HTTP client of deliveries: POST only, kept connections, guarded egress, HTTP/1.1 and HTTP/2."""
