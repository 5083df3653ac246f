"""Deterministic simulation: the real router among simulated queues, endpoints and faults, on virtual time.

One number, the seed, determines everything; a failure reports it, and `penstock simulate` runs it again.
"""
