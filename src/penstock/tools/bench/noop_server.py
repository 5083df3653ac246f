"""A server on the same stack that answers every request with an empty object: the ceiling of the SQS server."""

from penstock.http.server import Receive, Scope, Send, accept_lifespan, serve


async def noop(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the request, answer 200."""
    if scope["type"] == "lifespan":
        await accept_lifespan(receive, send)
        return
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})


if __name__ == "__main__":
    serve(noop, "127.0.0.1", 0)
