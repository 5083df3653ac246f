"""Measures the way of an event from publisher to receiver, through a real `penstock up`."""
