"""The egress guard: resolves the host of every delivery, checks the addresses, and pins them.

There is no second lookup between the check and the connection, so that a name cannot get another address in between
(DNS rebinding); the peer of the connected socket is checked again before anything is sent.
"""

import asyncio
import socket
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from typing import Any, Protocol, TypeAlias

import msgspec

from penstock.delivery.errors import ConnectFailed, EgressRefused
from penstock.domain.addresses import Address, Denial, Network, denial_of, embedded_ipv4
from penstock.edge.own_ports import is_served_here

CACHE_S = 30.0
MAX_CACHED_NAMES = 1000
# The system's resolver blocks a thread; a name server that hangs must not block the other lookups.
LOOKUP_THREADS = 16

SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
Lookup: TypeAlias = Callable[[str, int], list[SocketAddress]]


class _Found(msgspec.Struct, frozen=True):
    addresses: "asyncio.Future[list[SocketAddress]]"
    until_s: float


def system_lookup(host: str, port: int) -> list[SocketAddress]:
    """Resolve a host by the operating system, which also accepts forms such as 0x7f.1 or 2130706433."""
    return [
        _socket_address(family, address)
        for family, *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    ]


def _socket_address(family: int, address: tuple[Any, ...]) -> SocketAddress:
    return (*address[:2], *address[2:4]) if family == socket.AF_INET6 else (address[0], address[1])


class Guard(Protocol):
    """Decides which addresses a client may connect to."""

    async def addresses(self, host: str, port: int) -> list[SocketAddress]:
        """Return the allowed addresses of a host; raise EgressRefused or ConnectFailed if there are none."""
        ...

    def check_peer(self, sock: socket.socket) -> None:
        """Raise EgressRefused if the peer of a connected socket is not allowed."""


class AnyAddress:
    """Allows every address: for servers that the operator has configured, never for a user's URLs."""

    async def addresses(self, host: str, port: int) -> list[SocketAddress]:
        """Return all addresses of a host; raise ConnectFailed if the name cannot be resolved."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise _unresolved(host, error) from error
        return [_socket_address(family, address) for family, *_, address in found]

    def check_peer(self, sock: socket.socket) -> None:
        """Do nothing."""


class EgressGuard:
    """Decides which addresses a delivery may connect to. Bound to one event loop.

    `deny_ports` are ports of this machine that stay closed whatever is allowed, as do those that this process serves.
    """

    def __init__(
        self,
        allowed: tuple[Network, ...] = (),
        lookup: Lookup = system_lookup,
        *,
        deny_ports: Collection[int] = (),
    ) -> None:
        self._allowed = allowed
        self._deny_ports = frozenset(deny_ports)
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="penstock-lookup")
        self._found: dict[tuple[str, int], _Found] = {}

    async def addresses(self, host: str, port: int) -> list[SocketAddress]:
        """Return the allowed addresses of a host, each checked now.

        Raise EgressRefused if none of its addresses is allowed, ConnectFailed if the name cannot be resolved.
        """
        found = await self._resolved(host, port)
        denials = {address: self._denial(address) for address in found}
        allowed = [address for address, denial in denials.items() if denial is None]
        if allowed:
            return allowed
        refused = next((denial for denial in denials.values() if denial is not None), None)
        if refused is None:
            raise ConnectFailed(f"{host} has no address; check the name")
        advice = "add its network to egress.allow if it is yours" if refused.can_be_allowed else "no setting opens it"
        raise EgressRefused(f"{host} may not be reached: {refused.reason}; {advice}")

    def check_peer(self, sock: socket.socket) -> None:
        """Raise EgressRefused if the peer of a connected socket is not allowed."""
        denial = self._denial(sock.getpeername())
        if denial is not None:
            raise EgressRefused(f"the connection went to an address that may not be reached: {denial.reason}")

    def close(self) -> None:
        """Stop lookups."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._found.clear()

    def _denial(self, address: SocketAddress) -> Denial | None:
        port = address[1]
        if (port in self._deny_ports or is_served_here(port)) and is_this_machine(address):
            return Denial(f"port {port} of this machine is closed to deliveries", can_be_allowed=False)
        return denial_of(_ip(address), self._allowed)

    async def _resolved(self, host: str, port: int) -> list[SocketAddress]:
        loop = asyncio.get_running_loop()
        entry = self._found.get((host, port))
        if entry is None or loop.time() >= entry.until_s:
            entry = self._look_up(host, port, loop)
        try:
            # Callers share a lookup, so a cancelled caller must not cancel it.
            return await asyncio.shield(entry.addresses)
        except (OSError, UnicodeError) as error:
            raise _unresolved(host, error) from error

    def _look_up(self, host: str, port: int, loop: asyncio.AbstractEventLoop) -> _Found:
        if len(self._found) >= MAX_CACHED_NAMES:
            del self._found[next(iter(self._found))]
        addresses = loop.run_in_executor(self._threads, self._lookup, host, port)
        entry = self._found[host, port] = _Found(addresses, loop.time() + CACHE_S)
        addresses.add_done_callback(partial(self._forget_failure, (host, port)))
        return entry

    def _forget_failure(self, name: tuple[str, int], addresses: "asyncio.Future[list[SocketAddress]]") -> None:
        entry = self._found.get(name)
        failed = addresses.cancelled() or addresses.exception() is not None
        if failed and entry is not None and entry.addresses is addresses:
            del self._found[name]


def is_this_machine(address: SocketAddress) -> bool:
    """Return whether a connection to the address would stay on this machine."""
    ip = _ip(address)
    if any(each.is_loopback or each.is_unspecified for each in (ip, *embedded_ipv4(ip))):
        return True
    family = socket.AF_INET if len(address) == 2 else socket.AF_INET6
    # Sends nothing; the system only chooses the source, which for an address of its own is that address.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)
        except OSError:
            return False
        return _ip(probe.getsockname()) == ip


def _unresolved(host: str, error: Exception) -> ConnectFailed:
    return ConnectFailed(f"cannot resolve the name {host}: {error}; check the name")


def _ip(address: SocketAddress) -> Address:
    return ip_address(address[0])
