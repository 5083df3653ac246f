"""`/api/test/…`: endpoints to deliver to, each with a way of its own. For trying things out; off unless switched on."""

from collections.abc import Awaitable, Callable

import msgspec

from penstock.http.server import Receive, Scope, Send, send_answer

PREFIX = "/api/test/"
SLOW_S = 5.0
_JSON = {"content-type": "application/json"}
_ACKED = b'{"ack":true}'
_REFUSED = b'{"ack":false,"delaySeconds":5}'
_ERROR = b'{"error":"as asked for"}'


class _Way(msgspec.Struct, frozen=True):
    """How an endpoint answers."""

    status: int = 200
    body: bytes = _ACKED
    pause_s: float = 0.0
    headers: dict[str, str] = {}


_SUCCESS = _Way()
_CLIENT_ERROR = _Way(400, _ERROR)
_SERVER_ERROR = _Way(500, _ERROR)
# Each the way of the endpoint's first request, its second and so on, round and round.
_WAYS = {
    "fast": (_SUCCESS,),
    "success": (_SUCCESS,),
    "slow": (_Way(pause_s=SLOW_S),),
    "faulty": (_SUCCESS, _SERVER_ERROR, _SUCCESS, _Way(body=_REFUSED)),
    "fail": (_SERVER_ERROR,),
    "server-error": (_SERVER_ERROR,),
    "client-error": (_CLIENT_ERROR,),
    "rate-limited": (_Way(429, _ERROR, headers={"retry-after": "5"}),),
    "ack-false": (_Way(body=_REFUSED),),
}
NAMES = tuple(_WAYS)


class TestEndpoints:
    """Answers whatever is sent to them, and counts it."""

    __test__ = False  # not a test of pytest's

    def __init__(self, pause: Callable[[float], Awaitable[None]]) -> None:
        self._pause = pause
        self._requests = dict.fromkeys(_WAYS, 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        name = scope["path"].removeprefix(PREFIX)
        ways = _WAYS.get(name)
        if ways is None:
            await send_answer(scope, send, 404, b'{"error":"there is no such test endpoint"}', _JSON)
            return
        way = ways[self._requests[name] % len(ways)]
        self._requests[name] += 1
        if way.pause_s:
            await self._pause(way.pause_s)
        await send_answer(scope, send, way.status, way.body, {**_JSON, **way.headers})
