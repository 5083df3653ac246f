"""Subscribers of the browser tests: each answers what the test wants at the moment, and remembers what it got."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from penstock.http.server.asgi import Receive, Scope, Send, accept_lifespan, read_body, send_answer
from penstock.http.server.server import HttpServer

WAIT_S = 60


class Receiver:
    """An HTTP endpoint; `status` and `answer` are what it gives after `delay_s`. `bodies`: what it took, with a 200."""

    def __init__(self, threads: "ReceiverThread") -> None:
        self.status = 200
        self.answer = b'{"ack":true}'
        self.delay_s = 0.0
        self.bodies: list[bytes] = []
        self._server = HttpServer(self._app, "127.0.0.1", 0)
        threads.do(self._server.__aenter__())

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self._server.url}/hook"

    async def stop(self) -> None:
        """Stop listening."""
        self._server.abandon()
        await self._server.__aexit__(None, None, None)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
            return
        body = await read_body(receive)
        await asyncio.sleep(self.delay_s)
        if self.status == 200:
            self.bodies.append(body)
        await send_answer(scope, send, self.status, self.answer, {"content-type": "application/json"})


class ReceiverThread:
    """The thread that all receivers of the tests live in: Playwright keeps the test's own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something on its loop, and wait for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def close(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
