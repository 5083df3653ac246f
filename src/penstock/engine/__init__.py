"""The leased-queue engine that broker subscriptions, SQS queues and their partitions all use."""
