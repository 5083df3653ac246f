"""Repartition: copies a FIFO queue of Penstock's SQS server to a new one with another number of partitions."""
