"""Letting time pass."""

import asyncio
import time


async def pause(seconds: float) -> None:
    """Do nothing for a while; other tasks go on."""
    await asyncio.sleep(seconds)


def stopwatch() -> float:
    """Seconds on a clock that only serves to take differences."""
    return time.perf_counter()
