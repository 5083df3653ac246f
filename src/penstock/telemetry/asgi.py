"""The types of the ASGI interface, and one way to answer."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

# ASGI defines messages as dictionaries of mixed values; this is the one place that says so.
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


async def answer(scope: Scope, send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    """Send a whole response; a HEAD request gets the headers alone."""
    fields = {"content-length": str(len(body)), **headers}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def accept_lifespan(receive: Receive, send: Send) -> None:
    """Go through start-up and shut-down with nothing to do in either."""
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return
