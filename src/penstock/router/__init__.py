"""The message router: pulls pointers from queues and delivers them by HTTP, in order per group."""
