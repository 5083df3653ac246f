"""SQS as a queue: the one of AWS, or Penstock's own."""
