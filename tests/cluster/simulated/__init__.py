"""A deterministic simulation of a cluster: the real SQS nodes on virtual time, with faults from a seed.

One number, the seed, determines everything; `python -m tests.cluster.simulated --first N --seeds M` searches.
"""
