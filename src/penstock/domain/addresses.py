"""Which addresses a delivery may go to: the public internet, and the networks that the configuration allows.

Penstock has its own table, because `ipaddress.is_global` accepts NAT64, 6to4, multicast and the newer documentation
prefix. It follows IANA's special-purpose registries, and also denies reachable prefixes that serve no web hosts.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Services that give the machine's credentials to any caller. No setting opens them.
METADATA: dict[Address, str] = {
    ip_address(text): whose
    for text, whose in {
        "169.254.169.254": "AWS, Azure, Google, Oracle and others",
        "169.254.170.2": "AWS ECS task credentials",
        "169.254.170.23": "AWS EKS pod identity",
        "fd00:ec2::254": "AWS",
        "fd00:ec2::23": "AWS EKS pod identity",
        "fd20:ce::254": "Google Cloud",
        "fd00:c1::a9fe:a9fe": "Oracle Cloud",
        "192.0.0.192": "Oracle Cloud Classic",
        "168.63.129.16": "Azure's host",
        "100.100.100.200": "Alibaba Cloud",
        "169.254.42.42": "Scaleway",
        "fd00:42::42": "Scaleway",
        "fe80::a9fe:a9fe": "Akamai and OpenStack",
    }.items()
}

# The first network that contains an address gives the reason.
DENIED: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(text), reason)
    for text, reason in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier (CGNAT)"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "documentation"),
        ("192.31.196.0/24", "AS112"),
        ("192.52.193.0/24", "multicast relays (AMT)"),
        ("192.88.99.0/24", "6to4 relays"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "AS112"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "IPv4-compatible"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("64:ff9b::/96", "NAT64"),
        ("64:ff9b:1::/48", "NAT64"),
        ("100::/64", "discarded"),
        ("100:0:0:1::/64", "discarded"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "private (unique local)"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
        ("2001::/32", "Teredo"),
        ("2001:2::/48", "benchmarking"),
        ("2001:10::/28", "ORCHID"),
        ("2001:20::/28", "ORCHID"),
        ("2001::/23", "reserved for protocols"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("2620:4f:8000::/48", "AS112"),
        ("3fff::/20", "documentation"),
        # Everything else outside of 2000::/3, the only part of IPv6 that is assigned to internet hosts.
        ("::/3", "not assigned"),
        ("4000::/2", "not assigned"),
        ("8000::/1", "not assigned"),
    )
)


_LOW_32_BITS = tuple(IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96"))
_SIX_TO_FOUR = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_ISATAP = 0x0000_5EFE


class Denial(msgspec.Struct, frozen=True):
    """Why an address may not be reached."""

    reason: str
    # Whether a network in `egress.allow` would open it.
    can_be_allowed: bool


def denial_of(address: Address, allowed: Iterable[Network]) -> Denial | None:
    """Return why a delivery may not go to the address, or None if it may.

    An IPv6 address that carries IPv4 addresses must pass as itself and as each of them.
    """
    networks = tuple(allowed)
    for candidate in (address, *embedded_ipv4(address)):
        denial = _own_denial(candidate, networks)
        if denial is not None:
            return denial
    return None


def embedded_ipv4(address: Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that a transition mechanism may extract from an IPv6 address."""
    if isinstance(address, IPv4Address):
        return
    bits = int(address)
    low = bits & 0xFFFF_FFFF
    if any(address in prefix for prefix in _LOW_32_BITS) or bits >> 32 & 0xFDFF_FFFF == _ISATAP:
        yield IPv4Address(low)
    if address in _SIX_TO_FOUR:
        yield IPv4Address(bits >> 80 & 0xFFFF_FFFF)
    if address in _TEREDO:
        yield IPv4Address(bits >> 64 & 0xFFFF_FFFF)
        yield IPv4Address(low ^ 0xFFFF_FFFF)
    if address in _LOCAL_NAT64:
        yield from _nat64_layouts(bits)


def _nat64_layouts(bits: int) -> Iterator[IPv4Address]:
    """Yield the address that RFC 6052 reads for each prefix length; bits 64 to 71 are never part of it."""
    joined = bits >> 64 << 56 | bits & 0xFF_FFFF_FFFF_FFFF
    readings = [joined >> 120 - length - 32 & 0xFFFF_FFFF for length in (48, 56, 64)]
    # An address that starts with a zero byte is the padding of another length; no host has one.
    yield from (IPv4Address(reading) for reading in (*readings, bits & 0xFFFF_FFFF) if reading >> 24)


def _own_denial(address: Address, allowed: tuple[Network, ...]) -> Denial | None:
    whose = METADATA.get(_without_zone(address))
    if whose is not None:
        return Denial(f"{address} gives out credentials of the machine ({whose})", can_be_allowed=False)
    for network, reason in DENIED:
        if address in network:
            if any(address in opened for opened in allowed):
                return None
            return Denial(f"{address} is {reason}", can_be_allowed=True)
    return None


def _without_zone(address: Address) -> Address:
    return IPv6Address(int(address)) if isinstance(address, IPv6Address) else address
