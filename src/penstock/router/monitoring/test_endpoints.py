"""`/api/test/…`: endpoints that succeed, fail or wait, for trying out deliveries; disabled by default."""

from collections.abc import Awaitable, Callable

import msgspec

from penstock.http.server import Receive, Scope, Send, send_answer

PREFIX = "/api/test/"
SLOW_S = 5.0
_JSON = {"content-type": "application/json"}
_ACKED = b'{"ack":true}'
_REFUSED = b'{"ack":false,"delaySeconds":5}'
_ERROR = b'{"error":"as asked for"}'


class _Reply(msgspec.Struct, frozen=True):
    """A reply of an endpoint."""

    status: int = 200
    body: bytes = _ACKED
    pause_s: float = 0.0
    headers: dict[str, str] = {}


_SUCCESS = _Reply()
_CLIENT_ERROR = _Reply(400, _ERROR)
_SERVER_ERROR = _Reply(500, _ERROR)
# The replies of an endpoint to its requests, in turn.
_REPLIES = {
    "fast": (_SUCCESS,),
    "success": (_SUCCESS,),
    "slow": (_Reply(pause_s=SLOW_S),),
    "faulty": (_SUCCESS, _SERVER_ERROR, _SUCCESS, _Reply(body=_REFUSED)),
    "fail": (_SERVER_ERROR,),
    "server-error": (_SERVER_ERROR,),
    "client-error": (_CLIENT_ERROR,),
    "rate-limited": (_Reply(429, _ERROR, headers={"retry-after": "5"}),),
    "ack-false": (_Reply(body=_REFUSED),),
}
NAMES = tuple(_REPLIES)


class TestEndpoints:
    """The ASGI application of the test endpoints."""

    __test__ = False  # not a pytest class

    def __init__(self, pause: Callable[[float], Awaitable[None]]) -> None:
        self._pause = pause
        self._requests = dict.fromkeys(_REPLIES, 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        name = scope["path"].removeprefix(PREFIX)
        replies = _REPLIES.get(name)
        if replies is None:
            await send_answer(scope, send, 404, b'{"error":"there is no such test endpoint"}', _JSON)
            return
        reply = replies[self._requests[name] % len(replies)]
        self._requests[name] += 1
        if reply.pause_s:
            await self._pause(reply.pause_s)
        await send_answer(scope, send, reply.status, reply.body, {**_JSON, **reply.headers})
