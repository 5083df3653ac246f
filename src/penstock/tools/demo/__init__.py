"""The program of `penstock demo`."""
