"""Penstock: ordered event delivery, in order per key, at least once, at the pace each subscriber can take."""

__version__ = "0.2.0.dev0"
