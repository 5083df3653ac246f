"""Dispatch: PENDING jobs to the queue, in order per group, by the inline engine or by Spark."""
