"""Benchmarks: each measures one part as its users use it, and takes the median of several runs."""
