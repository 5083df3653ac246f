"""Replay: jobs that are over, delivered once more, through the queue or by the executors themselves."""
