"""The asyncio HTTP client: kept connections, HTTP/1.1 and HTTP/2, guarded egress for deliveries."""
