"""Serving an ASGI app over HTTP, from a bound socket to a graceful stop."""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import uvicorn

from penstock.core.errors import PenstockError
from penstock.telemetry.asgi import App, Message, Receive, Scope, Send
from penstock.telemetry.errors import StartFailed
from penstock.telemetry.listening import listening_socket, url_of
from penstock.telemetry.redaction import mask_secrets

GRACE_S = 10


def serve(app: App, host: str, port: int, *, credentials_set: bool = False) -> None:
    """Serve until SIGINT or SIGTERM, then stop gracefully; a second signal stops at once."""
    run(serve_until_signal(HttpServer(app, host, port, credentials_set=credentials_set)))


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on the quickest loop this platform has."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main)


class HttpServer:
    """One served app on the running loop: `async with` starts it and stops it."""

    def __init__(self, app: App, host: str, port: int, *, credentials_set: bool = False) -> None:
        self._host = host
        self._port = port
        self._credentials_set = credentials_set
        self._app = _StartWatch(app)
        self._server = _Server(_uvicorn_config(self._app))
        self._running: asyncio.Task[None] | None = None
        self.url = ""

    async def __aenter__(self) -> "HttpServer":
        """Bind and start; `url` is known and reachable from here on."""
        sock = listening_socket(self._host, self._port, credentials_set=self._credentials_set)
        self.url = url_of(self._host, sock)
        self._running = asyncio.create_task(self._server.serve([sock]), name=f"serve {self.url}")
        try:
            await self._server.start_ended.wait()
            if not self._server.started:
                await self._running
                raise self._app.failure()
        except BaseException:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            sock.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let requests in progress end, for a while, then stop."""
        self._server.should_exit = True
        if self._running is not None:
            await self._running

    def abandon(self) -> None:
        """Stop waiting for requests in progress."""
        self._server.force_exit = True


class _Server(uvicorn.Server):
    """Uvicorn without its hold on the process: signals are ours, and a failed start does not exit."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.start_ended = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            self.should_exit = True
        finally:
            self.start_ended.set()


class _StartWatch:
    """The app, remembering why its start-up failed."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._error: Exception | None = None
        self._reason = "the log says why"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def failure(self) -> PenstockError:
        """The app's own error if it is one of ours, else a sentence with what is known."""
        if isinstance(self._error, PenstockError):
            return self._error
        return StartFailed(f"the service did not start: {self._reason}")

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "lifespan.startup.complete"
            if message["type"] == "lifespan.startup.failed":
                self._reason = message.get("message") or self._reason
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if started:
                raise
            self._error, self._reason = error, mask_secrets(f"{type(error).__name__}: {error}")
            await send({"type": "lifespan.startup.failed", "message": self._reason})


def _uvicorn_config(app: App) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        # Not "auto", which takes a start-up that raises for an app without start-up.
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


async def serve_until_signal(server: HttpServer, before_stop: Callable[[], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; `before_stop` may answer requests that would otherwise wait for long."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            server.abandon()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    async with server:
        print(f"listening on {server.url}", flush=True)
        await stop.wait()
        if before_stop is not None:
            before_stop()
