"""Dispatch on Spark: each tick of the stream is a round that reads, plans and publishes lanes in parallel tasks."""
