"""Leadership: of several routers one is primary and consumes, the others stand by."""

import asyncio
from typing import Protocol


class RouterLeadership(Protocol):
    """Whether this instance is the primary one."""

    def is_primary(self) -> bool:
        """Whether this instance may consume now."""
        ...

    async def becomes(self, primary: bool) -> None:
        """Return as soon as `is_primary` is `primary`; at once if it is."""


class AlwaysPrimary:
    """The leadership of a router that runs alone."""

    def is_primary(self) -> bool:
        """True."""
        return True

    async def becomes(self, primary: bool) -> None:
        """Return at once, or never."""
        if not primary:
            await asyncio.Event().wait()
