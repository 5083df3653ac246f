"""Repeating a measurement and telling the rates of it."""

import statistics
import time
from collections.abc import Callable


def median_rate(rounds: int, run: Callable[[], int]) -> float:
    """Operations per second, the median over `rounds` runs; `run` does the work and tells how many it did."""
    return statistics.median(rate_of(run) for _ in range(rounds))


def rate_of(run: Callable[[], int]) -> float:
    """Operations per second of one run."""
    started = time.perf_counter()
    operations = run()
    return operations / (time.perf_counter() - started)
