"""An HTTP proxy that deliveries leave through: a tunnel to the endpoint's name, asked for with CONNECT (RFC 9110).

The proxy resolves the name, so it decides which networks may be reached (DELIVERY-EGRESS-8).
"""

import asyncio
import re
import socket
from urllib.parse import urlsplit

from penstock.delivery.errors import ConnectFailed
from penstock.delivery.http.request import Origin

_MOST_ANSWER_BYTES = 16 * 1024
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_ADDRESS = re.compile(r"\d+|0[xX][0-9a-fA-F]*")


def proxy_origin(url: str) -> Origin | None:
    """Return where a proxy listens; None for no proxy."""
    if not url:
        return None
    parts = urlsplit(url)
    return Origin(secure=False, host=parts.hostname or "", port=parts.port or 80)


def is_name(host: str) -> bool:
    """Return whether a host is a name to be looked up, and not an address in any spelling, or this machine."""
    last = host.rstrip(".").rpartition(".")[2].lower()
    return ":" not in host and last != "localhost" and _ADDRESS.fullmatch(last) is None


async def open_tunnel(sock: socket.socket, origin: Origin) -> None:
    """Ask the proxy at the other end of a socket for a connection; raise ConnectFailed if it gives none."""
    loop = asyncio.get_running_loop()
    place = f"{origin.host}:{origin.port}"
    await loop.sock_sendall(sock, f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode("ascii"))
    answer = b""
    # The endpoint speaks only when it is spoken to, so nothing of it follows.
    while not answer.endswith(b"\r\n\r\n"):
        part = await loop.sock_recv(sock, _MOST_ANSWER_BYTES)
        answer += part
        if not part or len(answer) > _MOST_ANSWER_BYTES:
            break
    status = _STATUS.match(answer)
    if status is None or status[1][:1] != b"2":
        reason = "its answer is not HTTP" if status is None else f"it answered {status[1].decode()}"
        raise ConnectFailed(f"the proxy gave no connection to {place}: {reason}")
    if not answer.endswith(b"\r\n\r\n"):
        raise ConnectFailed(f"the proxy gave no connection to {place}: its answer is incomplete or too long")
