"""An SQS queue: attributes, partitions, receipts, throttle and redrive."""
