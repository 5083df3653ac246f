"""Acknowledge received bytes immediately, for a peer that waits for it before it sends the rest."""

import asyncio
import socket
from contextlib import suppress

# Linux only; elsewhere such a peer waits for the delayed acknowledgement.
_OPTION: int | None = getattr(socket, "TCP_QUICKACK", None)


def acknowledge_now(transport: asyncio.BaseTransport) -> None:
    """Send the acknowledgement of what was received so far.

    A peer that writes head and body separately, without TCP_NODELAY, sends the body only after the head is
    acknowledged, and Linux delays that by 40 ms on a connection of short requests. The option does not last, so it is
    set whenever a message is still incomplete.
    """
    sock: socket.socket | None = transport.get_extra_info("socket")
    if _OPTION is not None and sock is not None:
        with suppress(OSError):  # closed in the meantime
            sock.setsockopt(socket.IPPROTO_TCP, _OPTION, 1)
