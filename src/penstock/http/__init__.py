"""HTTP servers: connections, routes, OpenAPI, keys."""
