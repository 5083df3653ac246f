"""The HTTP server: connections, answers, ASGI."""
