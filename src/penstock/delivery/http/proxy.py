"""An HTTP proxy that deliveries leave through: a tunnel to the endpoint's name, asked for with CONNECT (RFC 9110).

The proxy resolves the name, so it decides which networks may be reached (DELIVERY-EGRESS-8).
"""

import asyncio
import re
import socket
from base64 import b64encode
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.delivery.errors import ConnectFailed
from penstock.delivery.http.request import Origin

_MOST_ANSWER_BYTES = 16 * 1024
_CREDENTIALS_NEEDED = b"407"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_ADDRESS = re.compile(r"\d+|0[xX][0-9a-fA-F]*")


class Proxy(msgspec.Struct, frozen=True):
    """Where a proxy listens, and what it lets us in with: the value of Proxy-Authorization, or nothing."""

    origin: Origin
    authorization: str = ""

    def __repr__(self) -> str:
        # Without the password, which must not appear in a log.
        return f"Proxy({self.origin.host}:{self.origin.port})"


def proxy_of(url: str) -> Proxy | None:
    """Return the proxy of a URL, with the user name and password in it; None for no proxy."""
    if not url:
        return None
    parts = urlsplit(url)
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(pair.encode()).decode()}"
    return Proxy(Origin(secure=False, host=parts.hostname or "", port=parts.port or 80), authorization)


def is_name(host: str) -> bool:
    """Return whether a host is a name to be looked up, and not an address in any spelling, or this machine."""
    last = host.rstrip(".").rpartition(".")[2].lower()
    return ":" not in host and last != "localhost" and _ADDRESS.fullmatch(last) is None


async def open_tunnel(sock: socket.socket, origin: Origin, authorization: str = "") -> None:
    """Ask the proxy at the other end of a socket for a connection; raise ConnectFailed if it gives none."""
    loop = asyncio.get_running_loop()
    place = f"{origin.host}:{origin.port}"
    credentials = f"Proxy-Authorization: {authorization}\r\n" if authorization else ""
    await loop.sock_sendall(sock, f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{credentials}\r\n".encode("ascii"))
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
        if status is not None and status[1] == _CREDENTIALS_NEEDED:
            wrong = (
                "does not accept the user name and password" if authorization else "needs a user name and a password"
            )
            reason += f": it {wrong} of egress.proxy, http://USER:PASSWORD@HOST:PORT"
        raise ConnectFailed(f"the proxy gave no connection to {place}: {reason}")
    if not answer.endswith(b"\r\n\r\n"):
        raise ConnectFailed(f"the proxy gave no connection to {place}: its answer is incomplete or too long")
