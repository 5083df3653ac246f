"""Queues the router consumes and the dispatcher publishes to: SQS, NATS, ActiveMQ, and an embedded one."""
