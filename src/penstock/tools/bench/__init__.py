"""Benchmarks: each measures one part the way its users drive it, and takes the median of several runs."""
