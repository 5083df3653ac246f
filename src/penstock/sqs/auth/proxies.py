"""What a proxy says of the address that its client used: believed only from proxies that are trusted."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import ip_address

from penstock.domain.addresses import Network

_HOST = re.compile(rb"[A-Za-z0-9._-]+(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?")
_SECURE = {b"https": True, b"http": False}


class TrustedProxies:
    """The networks of proxies."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks = tuple(networks)
        self._trusts = lru_cache(1024)(self._is_in_a_network)

    def address_of(self, peer: str, headers: Mapping[bytes, bytes], *, secure: bool) -> tuple[bytes, bool]:
        """Return the host that the client named, and whether it used TLS.

        Each proxy appends to these headers, so the last value is that of the proxy that we know.
        """
        host = headers.get(b"host", b"")
        if not self._networks or not self._trusts(peer):
            return host, secure
        forwarded = headers.get(b"x-forwarded-host", b"").rpartition(b",")[2].strip()
        proto = headers.get(b"x-forwarded-proto", b"").rpartition(b",")[2].strip().lower()
        return forwarded if _HOST.fullmatch(forwarded) else host, _SECURE.get(proto, secure)

    def _is_in_a_network(self, peer: str) -> bool:
        try:
            address = ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in self._networks)
