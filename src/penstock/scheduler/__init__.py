"""The dispatch scheduler: takes PENDING jobs from the database to the queue, in order per group (seed 004)."""
