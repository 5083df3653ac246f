"""Intake: consumers of queues, deduplication, routing to pools, settlement."""
