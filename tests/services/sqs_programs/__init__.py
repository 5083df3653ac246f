"""Programs of users of SQS, for the clients that they use."""
