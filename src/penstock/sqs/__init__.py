"""The SQS-compatible server: AWS's protocol over the queue engine, with per-queue throttling and partitioned FIFO."""
