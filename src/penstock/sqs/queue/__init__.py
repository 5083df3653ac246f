"""One SQS queue: attributes, partitions, throttling, redrive."""
