"""SQS as a queue: AWS's, or Penstock's own."""
