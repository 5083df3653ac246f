"""Opens connections to checked and pinned addresses, with the host name of the URL."""

import asyncio
import socket
import ssl
from functools import cached_property
from typing import cast

from penstock.delivery.egress import AnyAddress, Guard, SocketAddress
from penstock.delivery.errors import ConnectFailed, ConnectTimedOut
from penstock.delivery.http.connection import Connection, ConnectionOwner
from penstock.delivery.http.http1 import Http1Connection
from penstock.delivery.http.http2 import Http2Connection
from penstock.delivery.http.proxy import Proxy, is_name, open_tunnel, proxy_of
from penstock.delivery.http.request import Origin
from penstock.delivery.http.settings import HttpClientSettings
from penstock.ops.config import HttpVersion


class Dialer:
    """Opens connections to origins."""

    def __init__(self, guard: Guard, settings: HttpClientSettings, tls: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        self._settings = settings
        self._given_tls = tls
        self._proxy = proxy_of(settings.proxy)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """The TLS context, created on first use, as loading the system's authorities is slow."""
        context = self._given_tls if self._given_tls is not None else ssl.create_default_context()
        wants_h2 = self._settings.http_version is HttpVersion.HTTP_2
        context.set_alpn_protocols(["h2", "http/1.1"] if wants_h2 else ["http/1.1"])
        return context

    async def dial(self, origin: Origin, owner: ConnectionOwner) -> Connection:
        """Open a connection; raise ConnectFailed or EgressRefused if that fails."""
        timeout_s = self._settings.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._dial(origin, owner)
        except TimeoutError as error:
            raise ConnectTimedOut(f"{origin.host}:{origin.port}", timeout_s) from error

    async def _dial(self, origin: Origin, owner: ConnectionOwner) -> Connection:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._settings.connect_timeout_s
        proxy = self._proxy if is_name(origin.host) else None
        guard, place = (self._guard, origin) if proxy is None else (AnyAddress(), proxy.origin)
        addresses = await guard.addresses(place.host, place.port)
        failure: OSError | None = None
        for tried, address in enumerate(addresses):
            try:
                # Each address gets its share of the remaining time, so that a dead one does not use all of it.
                async with asyncio.timeout((end_s - loop.time()) / (len(addresses) - tried)):
                    return await self._connect(address, origin, owner, proxy)
            except OSError as error:  # TimeoutError is one
                failure = error
        if isinstance(failure, TimeoutError):
            raise failure
        raise ConnectFailed(f"cannot connect to {place.host}:{place.port}: {failure}") from failure

    async def _connect(
        self, address: SocketAddress, origin: Origin, owner: ConnectionOwner, proxy: Proxy | None
    ) -> Connection:
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET if len(address) == 2 else socket.AF_INET6, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
            if proxy is not None:
                await open_tunnel(sock, origin, proxy.authorization)
            else:
                self._guard.check_peer(sock)
            _, protocol = await loop.create_connection(
                lambda: _Opening(owner, self._settings),
                sock=sock,
                ssl=self._tls if origin.secure else None,
                # The final dot of a name is for the resolver; certificates do not have it.
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
    """A placeholder until the endpoint has chosen its protocol."""

    chosen: Connection

    def __init__(self, owner: ConnectionOwner, settings: HttpClientSettings) -> None:
        self._owner = owner
        self._settings = settings

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Replace this by the protocol that was chosen in the TLS handshake."""
        tls = transport.get_extra_info("ssl_object")
        is_h2 = tls is not None and tls.selected_alpn_protocol() == "h2"
        protocol = (Http2Connection if is_h2 else Http1Connection)(self._owner, self._settings)
        self.chosen = protocol
        cast("asyncio.Transport", transport).set_protocol(protocol)
        protocol.connection_made(transport)
