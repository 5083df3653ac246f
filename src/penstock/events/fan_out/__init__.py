"""Fan-out: events × subscriptions → jobs, by the inline engine or by Spark."""
