"""Getting a request to somebody else's endpoint: the HTTP client, the egress guard, and the endpoints' breakers."""
