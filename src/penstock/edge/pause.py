"""Sleeping; apart from the clock, so that programs without asyncio do not load it."""

import asyncio
from collections.abc import Awaitable, Callable

Pause = Callable[[float], Awaitable[None]]
"""Sleeps for a number of seconds."""


async def pause(seconds: float) -> None:
    """Sleep; other tasks continue."""
    await asyncio.sleep(seconds)
