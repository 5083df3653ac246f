"""Repartition: a FIFO queue of Penstock's SQS server rebuilt with another number of partitions, as a new queue."""
