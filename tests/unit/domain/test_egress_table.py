"""Which addresses may be delivered to: against IANA's special-purpose registries, and against disguises."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.domain.addresses import METADATA, Address, Network, denial_of

EVERYTHING: tuple[Network, ...] = (ip_network("0.0.0.0/0"), ip_network("::/0"))

# IANA's IPv4 and IPv6 Special-Purpose Address Registries and the multicast ranges, entry by entry.
REGISTRY_LINES = """
0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.0.0/29
192.0.0.8/32 192.0.0.9/32 192.0.0.10/32 192.0.0.170/32 192.0.0.171/32 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24
192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4
255.255.255.255/32 224.0.0.0/4
::1/128 ::/128 ::ffff:0:0/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32 2001:1::1/128
2001:1::2/128 2001:1::3/128 2001:2::/48 2001:3::/32 2001:4:112::/48 2001:10::/28 2001:20::/28 2001:30::/28
2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8 ::/96
"""
REGISTRIES = REGISTRY_LINES.split()

PUBLIC_LINES = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255
169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0
198.51.99.255 203.0.114.0 223.255.255.255
2606:4700:4700::1111 2001:4860:4860::8888 2001:200:: 2a00:1450::1 2003::1 3ffe:ffff::1 2620:4f:7fff:ffff::1
"""
PUBLIC = PUBLIC_LINES.split()


def denied(text: str, allowed: tuple[Network, ...] = ()) -> bool:
    return denial_of(ip_address(text), allowed) is not None


@pytest.mark.parametrize("entry", REGISTRIES)
def test_every_entry_of_the_registries_is_denied_from_end_to_end(entry: str) -> None:
    network = ip_network(entry)
    for address in (network[0], network[-1], network[network.num_addresses // 2]):
        assert denial_of(address, ()) is not None, address


@pytest.mark.parametrize("address", PUBLIC)
def test_the_public_internet_is_open_right_up_to_its_borders(address: str) -> None:
    assert not denied(address)


@pytest.mark.parametrize(
    "disguise",
    [
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::1",
        "2001:0:7f00:1::",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "3fff::1",
        "ff02::1",
        "fe80::1%eth0",
        "4000::1",
        "2a00:1450::5efe:7f00:1",
        "2a00:1450::200:5efe:a9fe:a9fe",
    ],
)
def test_disguises_are_denied_also_where_python_calls_them_global(disguise: str) -> None:
    assert denied(disguise)


@pytest.mark.parametrize("address", [str(address) for address in METADATA])
def test_metadata_services_are_denied_whatever_is_allowed(address: str) -> None:
    exact = (ip_network(address), *EVERYTHING)
    denial = denial_of(ip_address(address), exact)
    assert denial is not None
    assert not denial.can_be_allowed


@pytest.mark.parametrize("shape", ["::ffff:{}", "::{}", "64:ff9b::{}", "64:ff9b:1::{}", "::ffff:0:{}", "2a00::5efe:{}"])
@pytest.mark.parametrize("address", [address for address in METADATA if isinstance(address, IPv4Address)])
def test_metadata_services_are_denied_in_disguise_whatever_is_allowed(shape: str, address: IPv4Address) -> None:
    assert denied(shape.format(address), EVERYTHING)


def test_a_link_local_metadata_service_is_denied_under_a_zone() -> None:
    assert denied("fe80::a9fe:a9fe%eth0", EVERYTHING)


def test_what_is_allowed_is_open_and_nothing_beside_it() -> None:
    allowed = (ip_network("127.0.0.0/8"), ip_network("10.1.0.0/16"), ip_network("fd12::/16"))
    assert not denied("127.0.0.1", allowed)
    assert not denied("10.1.2.3", allowed)
    assert not denied("fd12::1", allowed)
    assert denied("10.2.0.1", allowed)
    assert denied("::1", allowed)
    assert denied("fd13::1", allowed)
    assert not denied("8.8.8.8", allowed)


def test_a_denial_says_why_and_whether_a_setting_helps() -> None:
    denial = denial_of(ip_address("10.0.0.1"), ())
    assert denial is not None
    assert "10.0.0.1 is private" in denial.reason
    assert denial.can_be_allowed


def test_an_allowed_nat64_still_checks_the_address_inside() -> None:
    allowed = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
    assert not denied("64:ff9b::8.8.8.8", allowed)
    assert not denied("64:ff9b:1::8.8.8.8", allowed)
    assert denied("64:ff9b::127.0.0.1", allowed)
    assert denied("64:ff9b:1::127.0.0.1", allowed)
    assert not denied("64:ff9b::127.0.0.1", (*allowed, ip_network("127.0.0.0/8")))


PREFIXES = [
    IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/96")
]


def disguises(inside: IPv4Address, noise: int) -> list[IPv6Address]:
    """An IPv4 address in every form that carries one."""
    bits = int(inside)
    low_80, low_64 = noise & (1 << 80) - 1, noise & (1 << 64) - 1
    high, low = bits >> 16, bits & 0xFFFF
    local_nat64 = 0x0064_FF9B_0001 << 80
    return [
        *(IPv6Address(int(prefix[0]) | bits) for prefix in PREFIXES),
        IPv6Address(0x2002 << 112 | bits << 80 | low_80),
        IPv6Address(0x2001_0000 << 96 | bits << 64 | low_64),
        IPv6Address(0x2001_0000 << 96 | low_64 << 32 | bits ^ 0xFFFF_FFFF),
        IPv6Address(0x2A00 << 112 | 0x5EFE << 32 | bits),
        IPv6Address(0x2A00 << 112 | 0x0200_5EFE << 32 | bits),
        IPv6Address(local_nat64 | high << 64 | low << 40),
        IPv6Address(local_nat64 | bits >> 24 << 64 | (bits & 0xFF_FFFF) << 32),
        IPv6Address(local_nat64 | bits << 24),
    ]


ADDRESSES = st.integers(0, 2**32 - 1).map(IPv4Address)
SPECIAL = st.sampled_from([ip_network(entry) for entry in REGISTRIES if ":" not in entry]).flatmap(
    lambda network: st.integers(int(network[0]), int(network[-1])).map(IPv4Address)
)


@given(
    inside=SPECIAL | st.sampled_from([a for a in METADATA if isinstance(a, IPv4Address)]),
    noise=st.integers(0, 2**80 - 1),
)
def test_no_address_that_carries_a_denied_ipv4_passes_though_all_of_ipv6_is_allowed(
    inside: IPv4Address, noise: int
) -> None:
    assume(int(inside) >> 24)  # zeros in front are padding in one of the forms, and lead nowhere in the others
    assert denial_of(inside, ()) is not None
    for address in disguises(inside, noise):
        assert denial_of(address, (ip_network("::/0"),)) is not None, address


@given(inside=ADDRESSES, noise=st.integers(0, 2**80 - 1))
def test_transition_addresses_are_denied_outright_unless_allowed(inside: IPv4Address, noise: int) -> None:
    for address in disguises(inside, noise):
        if not is_isatap(address):
            assert denial_of(address, ()) is not None, address


def is_isatap(address: Address) -> bool:
    return int(address) >> 32 & 0xFDFF_FFFF == 0x5EFE


@given(address=st.integers(0, 2**128 - 1).map(IPv6Address))
def test_nothing_outside_of_the_assigned_part_of_ipv6_passes(address: IPv6Address) -> None:
    if address not in IPv6Network("2000::/3"):
        assert denial_of(address, ()) is not None
