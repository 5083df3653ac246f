"""HTTP servers: connections, routes, OpenAPI and API keys."""
