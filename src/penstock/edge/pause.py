"""Letting time pass; apart from the clock, so that programs without asyncio do not load it."""

import asyncio
from collections.abc import Awaitable, Callable

Pause = Callable[[float], Awaitable[None]]
"""Let some seconds pass."""


async def pause(seconds: float) -> None:
    """Do nothing for a while; other tasks go on."""
    await asyncio.sleep(seconds)
