"""Leadership: one of several routers is primary and consumes, the others are on standby."""

import asyncio
from typing import Protocol


class RouterLeadership(Protocol):
    """Reports whether this instance is the primary one."""

    def is_primary(self) -> bool:
        """Return whether this instance may consume now."""
        ...

    async def becomes(self, primary: bool) -> None:
        """Wait until `is_primary` is `primary`."""


class AlwaysPrimary:
    """The leadership of a router that runs alone."""

    def is_primary(self) -> bool:
        """Return True."""
        return True

    async def becomes(self, primary: bool) -> None:
        """Return immediately, or never."""
        if not primary:
            await asyncio.Event().wait()
