"""Serve an ASGI app over HTTP, from a bound socket to a graceful stop."""

import asyncio
import errno
import gc
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from penstock.edge.clock import wall_seconds
from penstock.edge.own_ports import serve_port
from penstock.edge.pause import pause
from penstock.http.errors import CannotListen, ExposedWithoutCredentials, PortInUse
from penstock.http.server.asgi import App, Lifespan
from penstock.http.server.connection import HttpConnection
from penstock.http.server.open_connections import OpenConnections
from penstock.http.server.tls import served_certificate

GRACE_S = 10
EXPIRE_EVERY_S = 5.0
BACKLOG = 2048

CHOOSE_ANOTHER = "choose another port"
"""Advice for a port that is not available; a caller that knows the port's option appends it."""

# A server on all addresses is reached at this one; guards and browsers do not accept the wildcard as an address.
_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def listening_socket(host: str, port: int, *, credentials_set: bool) -> socket.socket:
    """Return a listening socket (port 0 takes a free one), on loopback only unless credentials are set."""
    family, address = _resolve(host, port)
    if not credentials_set and not _is_loopback(address):
        raise ExposedWithoutCredentials(
            f"will not listen on {host}: other machines could use this service, and it asks for no "
            "credentials; set credentials, or listen on 127.0.0.1"
        )
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait for connections of the previous run to leave TIME_WAIT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen()
    except OSError as error:
        sock.close()
        raise _refusal(host, port, error) from error
    sock.setblocking(False)
    return sock


def is_loopback(host: str) -> bool:
    """Return whether a server on this host can be reached from this machine only."""
    return _is_loopback(_resolve(host, 0)[1])


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def url_of(host: str, sock: socket.socket, *, secure: bool = False) -> str:
    """Return the URL under which this machine reaches the socket."""
    name = _LOOPBACK_OF.get(host, host)
    return f"http{'s' if secure else ''}://{f'[{name}]' if ':' in name else name}:{sock.getsockname()[1]}"


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise CannotListen(f"cannot find the address {host}: {error}; use an IP address of this machine") from error
    # IPv4 first: a client that connects to "localhost" may not support IPv6.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, str(address[0])


def _refusal(host: str, port: int, error: OSError) -> CannotListen:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(
            f"port {port} on {host} is in use by another program; stop it, or {CHOOSE_ANOTHER} (0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return CannotListen(f"no permission to listen on port {port}; {CHOOSE_ANOTHER}, one above 1023")
    reason = error.strerror or str(error)
    return CannotListen(f"cannot listen on {host}:{port}: {reason}; use an IP address of this machine")


def serve(app: App, host: str, port: int, *, credentials_set: bool = False) -> None:
    """Serve until SIGINT or SIGTERM, then stop gracefully; a second signal stops immediately."""
    run(serve_until_signal(HttpServer(app, host, port, credentials_set=credentials_set)))


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a service on the fastest event loop of this platform."""
    # What is loaded now stays, and requests leave no cycles behind, so that collections may be rare.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    # The commit thread needs the interpreter only briefly; it must not wait 5 ms for it each time.
    sys.setswitchinterval(0.0005)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main)


class HttpServer:
    """A served app on the running loop: `async with` starts and stops it."""

    def __init__(self, app: App, host: str, port: int, *, credentials_set: bool = False) -> None:
        self._host = host
        self._port = port
        self._credentials_set = credentials_set
        self._lifespan = Lifespan(app)
        self._connections = OpenConnections(app, wall_seconds)
        self._listener: asyncio.Server | None = None
        self._reaper: asyncio.Task[None] | None = None
        self._certificate = served_certificate()
        self.url = ""
        self.port = 0

    async def __aenter__(self) -> "HttpServer":
        """Bind and start; `url` is known and reachable from here on."""
        sock = listening_socket(self._host, self._port, credentials_set=self._credentials_set)
        try:
            certificate = self._certificate
            self.url = url_of(self._host, sock, secure=certificate is not None)
            self.port = sock.getsockname()[1]
            await self._lifespan.start()
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_server(
                lambda: HttpConnection(self._connections),
                sock=sock,
                backlog=BACKLOG,
                ssl=None if certificate is None else certificate.context,
            )
        except BaseException:
            sock.close()
            raise
        self._reaper = asyncio.create_task(self._expire())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take no more requests, wait for those in progress for a limited time, then stop."""
        shared = self._connections
        shared.stopping = True
        if self._reaper is not None:
            self._reaper.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(shared.open):
            connection.close_when_idle()
        await shared.finish(GRACE_S)
        self.abandon()
        await self._lifespan.stop()

    def announce(self, *, open_to_deliveries: bool = False) -> None:
        """Print the address, and close the port to deliveries of this process unless it is there for them."""
        if not open_to_deliveries:
            serve_port(self.port)
        print(f"listening on {self.url}", flush=True)

    def abandon(self) -> None:
        """Stop waiting for requests in progress."""
        self._connections.abandon()

    async def _expire(self) -> None:
        """Close the connections of clients that have been idle or slow for too long; look for a new certificate."""
        loop = asyncio.get_running_loop()
        while True:
            await pause(EXPIRE_EVERY_S)
            self._connections.expire(loop.time())
            if self._certificate is not None:
                self._certificate.refresh()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


async def serve_until_signal(server: HttpServer, before_stop: Callable[[], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; `before_stop` may answer requests that would otherwise wait for long."""
    stop = stop_signal(server)
    async with server:
        server.announce()
        await stop.wait()
        if before_stop is not None:
            before_stop()


def stop_signal(server: HttpServer) -> asyncio.Event:
    """Return an event that SIGINT or SIGTERM sets; a second signal stops the server immediately."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            server.abandon()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    return stop
