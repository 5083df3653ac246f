"""The target and the head of a request, computed once for many requests."""

import re
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from penstock.delivery.errors import Undeliverable
from penstock.domain.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Signature

_VISIBLE = re.compile(r"[!-~]+")
_HOST = re.compile(r"[a-z0-9._-]{1,253}|[0-9a-f:.]*:[0-9a-f:.]*")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_HEADER_VALUE = re.compile(r"[ -~]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_CONTENT_LENGTH = b"Content-Length: "


Headers: TypeAlias = tuple[tuple[str, str], ...]


_SHARED_HEADERS: Headers = (
    ("content-type", "application/json"),
    ("accept", "application/json"),
    ("user-agent", "penstock"),
)


class Origin(msgspec.Struct, frozen=True, cache_hash=True):
    """Scheme, host and port: requests to one origin share connections."""

    secure: bool
    host: str
    port: int


class Target(msgspec.Struct, frozen=True):
    """The parts of a URL."""

    origin: Origin
    authority: str  # the Host header
    path: str  # with the query
    endpoint: str  # without the query: identifies a breaker, and is safe to log


class RequestHead(msgspec.Struct, frozen=True, gc=False):
    """The common start of requests to one URL with the same method and headers."""

    target: Target
    headers: Headers
    opening: bytes  # the HTTP/1.1 request up to the length of its body
    method: str = "POST"

    def with_values(self, headers: Headers) -> "RequestHead":
        """Return this head with more headers, whose names are valid; raise Undeliverable if a value is not."""
        if _HEADER_VALUE.fullmatch("".join([value for _, value in headers])) is None:
            _check_headers(headers)
        opening = b"%b%b%b" % (self.opening[: -len(_CONTENT_LENGTH)], _lines(headers), _CONTENT_LENGTH)
        return RequestHead(self.target, self.headers + headers, opening, self.method)

    def http1(self, body: bytes, signature: Signature | None) -> bytes:
        """Return a complete HTTP/1.1 request."""
        if signature is None:
            return b"%b%d\r\n\r\n%b" % (self.opening, len(body), body)
        return b"%b%d\r\n%b\r\n%b" % (self.opening, len(body), _lines(signature_headers(signature)), body)


def request_head(url: str, token: str | None) -> RequestHead:
    """Return the head for a URL and a token; raise Undeliverable if they are invalid."""
    target = parse_target(url)
    headers = _SHARED_HEADERS
    if token is not None and token.strip():
        if _HEADER_VALUE.fullmatch(token) is None:
            raise Undeliverable("the authToken cannot be used: it has characters that a header cannot have")
        headers += (("authorization", f"Bearer {token}"),)
    return _head(target, headers)


def head_with(url: str, headers: Headers, method: str = "POST") -> RequestHead:
    """Return the head for a URL and headers with lower-case names; raise Undeliverable if they are invalid."""
    _check_headers(headers)
    return _head(parse_target(url), headers, method)


def _check_headers(headers: Headers) -> None:
    for name, value in headers:
        if _HEADER_NAME.fullmatch(name) is None or _HEADER_VALUE.fullmatch(value) is None:
            raise Undeliverable(f"the header {name[:100]!r} has characters that a header cannot have")


def signature_headers(signature: Signature) -> Headers:
    """Return the headers of a signed delivery."""
    return (
        (ID_HEADER, signature.message_id),
        (TIMESTAMP_HEADER, signature.timestamp),
        (SIGNATURE_HEADER, signature.signatures),
    )


def parse_target(url: str) -> Target:
    """Parse a URL; raise Undeliverable if it can never be used."""
    # Checked first, as urlsplit silently drops line breaks and tabs.
    if _VISIBLE.fullmatch(url) is None or "\\" in url:
        raise _unusable("it has invalid characters; percent-encode them")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise _unusable(str(error)) from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise _unusable("its scheme is neither http nor https")
    if "@" in parts.netloc:
        raise _unusable("it contains a user name; send a token instead")
    if _HOST.fullmatch(host) is None or port == 0:
        raise _unusable("its host or port is invalid; write it as https://host:port/path")
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
    # Without the URL, as its query or user name may be secret.
    return Undeliverable(f"the URL cannot be used: {reason}")


def _head(target: Target, headers: Headers, method: str = "POST") -> RequestHead:
    first = f"{method} {target.path} HTTP/1.1\r\nHost: {target.authority}\r\n".encode()
    return RequestHead(target, headers, first + _lines(headers) + _CONTENT_LENGTH, method)


def _lines(headers: Headers) -> bytes:
    return "".join([f"{_canonical(name)}: {value}\r\n" for name, value in headers]).encode("ascii")


@lru_cache(maxsize=1000)
def _canonical(name: str) -> str:
    """Return a name as HTTP/1.1 shows it, such as Content-Type: some servers know no other case."""
    return "-".join(part.capitalize() for part in name.split("-"))
