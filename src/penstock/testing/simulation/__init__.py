"""Deterministic simulation: the real router among simulated queues, endpoints and faults, on virtual time.

One number, the seed, decides everything that happens; a failure names it, and `penstock simulate` runs it again.
"""
