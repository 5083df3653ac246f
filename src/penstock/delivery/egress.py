"""The egress guard: every delivery goes to an address that was looked up here, checked, and pinned.

There is no second lookup between the check and the connection, so a name cannot be bound to another address in the
meantime (DNS rebinding); the peer of the connected socket is checked once more before a byte is sent.
"""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from typing import Any, Protocol, TypeAlias

import msgspec

from penstock.delivery.errors import ConnectFailed, EgressRefused
from penstock.domain.addresses import Address, Network, denial_of

CACHE_S = 30.0
MAX_CACHED_NAMES = 1000
# The operating system's resolver blocks a thread; one name server that hangs must not hold up the others.
LOOKUP_THREADS = 16

SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
Lookup: TypeAlias = Callable[[str, int], list[SocketAddress]]


class _Found(msgspec.Struct, frozen=True):
    addresses: "asyncio.Future[list[SocketAddress]]"
    until_s: float


def system_lookup(host: str, port: int) -> list[SocketAddress]:
    """Ask the operating system, which also reads odd forms of addresses such as 0x7f.1 or 2130706433."""
    return [_place(family, place) for family, *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _place(family: int, place: tuple[Any, ...]) -> SocketAddress:
    return (*place[:2], *place[2:4]) if family == socket.AF_INET6 else (place[0], place[1])


class Guard(Protocol):
    """Says where a client may connect to."""

    async def addresses(self, host: str, port: int) -> list[SocketAddress]:
        """The addresses of a host that may be connected to; EgressRefused or ConnectFailed if there are none."""
        ...

    def check_peer(self, sock: socket.socket) -> None:
        """Make sure that a connected socket is connected to where it may be."""


class AnyAddress:
    """Allows every address: for servers that the operator has named, never for what a user sent."""

    async def addresses(self, host: str, port: int) -> list[SocketAddress]:
        """All addresses of a host; ConnectFailed if the name is not known."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise _unresolved(host, error) from error
        return [_place(family, place) for family, *_, place in found]

    def check_peer(self, sock: socket.socket) -> None:
        """Nothing to check."""


class EgressGuard:
    """Says where a delivery may connect to. Lives on one event loop."""

    def __init__(self, allowed: tuple[Network, ...] = (), lookup: Lookup = system_lookup) -> None:
        self._allowed = allowed
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="penstock-lookup")
        self._found: dict[tuple[str, int], _Found] = {}

    async def addresses(self, host: str, port: int) -> list[SocketAddress]:
        """The addresses of a host that may be connected to, each checked now.

        EgressRefused if there are some but none is allowed; ConnectFailed if the name is not known.
        """
        found = await self._resolved(host, port)
        denials = {place: denial_of(_address(place), self._allowed) for place in found}
        open_places = [place for place, denial in denials.items() if denial is None]
        if open_places:
            return open_places
        refused = next((denial for denial in denials.values() if denial is not None), None)
        if refused is None:
            raise ConnectFailed(f"{host} has no address; check the name")
        advice = "add its network to egress.allow if it is yours" if refused.can_be_allowed else "no setting opens it"
        raise EgressRefused(f"{host} may not be reached: {refused.reason}; {advice}")

    def check_peer(self, sock: socket.socket) -> None:
        """Make sure that a connected socket is connected to where it may be."""
        peer = sock.getpeername()
        denial = denial_of(_address(peer), self._allowed)
        if denial is not None:
            raise EgressRefused(f"the connection went to an address that may not be reached: {denial.reason}")

    def close(self) -> None:
        """Stop looking up."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._found.clear()

    async def _resolved(self, host: str, port: int) -> list[SocketAddress]:
        loop = asyncio.get_running_loop()
        entry = self._found.get((host, port))
        if entry is None or loop.time() >= entry.until_s:
            entry = self._look_up(host, port, loop)
        try:
            # Several callers share a lookup; one that is cancelled must not cancel it for the others.
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


def _unresolved(host: str, error: Exception) -> ConnectFailed:
    return ConnectFailed(f"the name {host} cannot be resolved: {error}; check the name")


def _address(place: SocketAddress) -> Address:
    return ip_address(place[0])
