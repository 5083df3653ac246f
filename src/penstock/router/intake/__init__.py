"""From queues into the router: consumers, deduplication, routing, settlement."""
