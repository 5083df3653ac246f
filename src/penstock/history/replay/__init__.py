"""Replay: delivers finished jobs again, through the queue or directly from the executors."""
