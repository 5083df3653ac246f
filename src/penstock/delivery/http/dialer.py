"""Opening a connection: to a checked and pinned address, under the name in the URL."""

import asyncio
import socket
import ssl
from functools import cached_property
from typing import cast

from penstock.delivery.egress import Guard, SocketAddress
from penstock.delivery.errors import ConnectFailed, ConnectTimedOut
from penstock.delivery.http.connection import Connection, Home
from penstock.delivery.http.http1 import Http1Connection
from penstock.delivery.http.http2 import Http2Connection
from penstock.delivery.http.request import Origin
from penstock.delivery.http.settings import HttpClientSettings
from penstock.ops.config import HttpVersion


class Dialer:
    """Connects to origins."""

    def __init__(self, guard: Guard, settings: HttpClientSettings, tls: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        self._settings = settings
        self._given_tls = tls

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Made when it is first needed: reading the system's authorities takes a while."""
        context = self._given_tls if self._given_tls is not None else ssl.create_default_context()
        wants_h2 = self._settings.http_version is HttpVersion.HTTP_2
        context.set_alpn_protocols(["h2", "http/1.1"] if wants_h2 else ["http/1.1"])
        return context

    async def dial(self, origin: Origin, home: Home) -> Connection:
        """A new connection; ConnectFailed or EgressRefused if there can be none."""
        timeout_s = self._settings.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._dial(origin, home)
        except TimeoutError as error:
            raise ConnectTimedOut(f"{origin.host}:{origin.port}", timeout_s) from error

    async def _dial(self, origin: Origin, home: Home) -> Connection:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._settings.connect_timeout_s
        places = await self._guard.addresses(origin.host, origin.port)
        failure: OSError | None = None
        for tried, place in enumerate(places):
            try:
                # Each address gets its share of the time that is left, so that a dead one does not use up all of it.
                async with asyncio.timeout((end_s - loop.time()) / (len(places) - tried)):
                    return await self._connect(place, origin, home)
            except OSError as error:  # TimeoutError is one
                failure = error
        if isinstance(failure, TimeoutError):
            raise failure
        raise ConnectFailed(f"cannot connect to {origin.host}:{origin.port}: {failure}") from failure

    async def _connect(self, place: SocketAddress, origin: Origin, home: Home) -> Connection:
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET if len(place) == 2 else socket.AF_INET6, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, place)
            self._guard.check_peer(sock)
            _, protocol = await loop.create_connection(
                lambda: _Opening(home, self._settings),
                sock=sock,
                ssl=self._tls if origin.secure else None,
                # A name's final dot is for the resolver; certificates do not have it.
                server_hostname=origin.host.rstrip(".") if origin.secure else None,
            )
        except BaseException:
            sock.close()
            raise
        return await _ready(protocol.chosen)


async def _ready(connection: Connection) -> Connection:
    try:
        await connection.ready()
    except BaseException:
        connection.abort()
        raise
    return connection


class _Opening(asyncio.Protocol):
    """Stands in until the connection is made: only then is it known which protocol the endpoint has chosen."""

    chosen: Connection

    def __init__(self, home: Home, settings: HttpClientSettings) -> None:
        self._home = home
        self._settings = settings

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected, and over TLS agreed on a protocol."""
        tls = transport.get_extra_info("ssl_object")
        speaks_h2 = tls is not None and tls.selected_alpn_protocol() == "h2"
        protocol = (Http2Connection if speaks_h2 else Http1Connection)(self._home, self._settings)
        self.chosen = protocol
        cast("asyncio.Transport", transport).set_protocol(protocol)
        protocol.connection_made(transport)
