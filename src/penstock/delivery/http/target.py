"""Where a delivery goes, taken apart once."""

import re
from urllib.parse import urlsplit

import msgspec

from penstock.delivery.errors import Undeliverable

_VISIBLE = re.compile(r"[!-~]+")
_HOST = re.compile(r"[a-z0-9._-]{1,253}|[0-9a-f:.]*:[0-9a-f:.]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(msgspec.Struct, frozen=True):
    """What connections are shared by."""

    secure: bool
    host: str
    port: int


class Target(msgspec.Struct, frozen=True):
    """A URL, taken apart."""

    origin: Origin
    authority: str  # the Host header
    path: str  # with the query
    endpoint: str  # without it: what a breaker stands for, and what logs may show


def parse_target(url: str) -> Target:
    """The parts of a pointer's URL; Undeliverable if nothing can ever be sent there."""
    # urlsplit drops line breaks and tabs without a word, so they are looked for first.
    if _VISIBLE.fullmatch(url) is None or "\\" in url:
        raise _unusable("it has characters that a URL cannot have; percent-encode them")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise _unusable(str(error)) from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise _unusable("its scheme is neither http nor https")
    if "@" in parts.netloc:
        raise _unusable("it carries a user name; send a token instead")
    if _HOST.fullmatch(host) is None or port == 0:
        raise _unusable("it names no host and port; write it as https://host:port/path")
    return _target(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], parts.path or "/", parts.query)


def _target(scheme: str, host: str, port: int, path: str, query: str) -> Target:
    name = f"[{host}]" if ":" in host else host
    authority = name if port == _DEFAULT_PORTS[scheme] else f"{name}:{port}"
    return Target(
        Origin(scheme == "https", host, port),
        authority,
        f"{path}?{query}" if query else path,
        f"{scheme}://{authority}{path}",
    )


def _unusable(reason: str) -> Undeliverable:
    # Without the URL: it may carry a secret in its query or user name.
    return Undeliverable(f"the mediationTarget cannot be used: {reason}")
