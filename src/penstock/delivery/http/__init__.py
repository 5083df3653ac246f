"""The asyncio HTTP client: persistent connections, HTTP/1.1 and HTTP/2, the egress guard."""
