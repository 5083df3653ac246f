"""Protects an API: refuses pages of other sites in an operator's browser, and requires a key if any is set.

A page of another site can send a request to this machine, but neither a JSON content type nor our header unless the
API allows it by CORS, which it never does. A host name that points to this machine only for the attack (DNS rebinding)
makes the page the same site: without keys, an API that other machines cannot reach answers to local names only.
"""

import binascii
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hmac import compare_digest
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from penstock.domain.event import BINARY_HEADER
from penstock.http.auth.keys import ApiKey, Caller, Role, caller_of
from penstock.http.problems import Refused

HEADER = "x-penstock"
LOCAL = Caller("local", Role.ADMIN)
"""Any caller of an API without keys, which can be reached from this machine only."""

_HOLDER_OF_TOKEN = Caller("api.token", Role.ADMIN)


class RequestGuard:
    """Refuses requests that must not be answered; callers must present `token` or one of `keys`, if any are set."""

    def __init__(self, token: str = "", keys: Callable[[], Sequence[ApiKey]] | None = None) -> None:
        self._token = token.encode()
        self._keys = keys

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Return who sent a request; Refused unless it may use the API."""
        if not self._token and self._keys is None:
            _require_local_name(headers.get("host", ""))
            return LOCAL
        given = bearer_token(headers.get("authorization", ""))
        if self._token and compare_digest(given, self._token):
            return _HOLDER_OF_TOKEN
        caller = None if self._keys is None else caller_of(given, self._keys())
        if caller is None:
            detail = "this API requires `Authorization: Bearer TOKEN`"
            raise Refused(HTTPStatus.UNAUTHORIZED, detail, {"www-authenticate": "Bearer"})
        return caller

    def check_role(self, caller: Caller, allowed: frozenset[Role]) -> None:
        """Raise Refused unless the caller has one of these roles."""
        if caller.role not in allowed:
            wanted = " or ".join(sorted(allowed))
            detail = f"the key of {caller.name!r} has the role {caller.role}; this requires {wanted}"
            raise Refused(HTTPStatus.FORBIDDEN, detail)

    def check_change(self, headers: Mapping[str, str]) -> None:
        """Raise Refused if a page of another site may have sent a request that changes something."""
        host = headers.get("host", "").lower()
        same_origin = headers.get("origin", f"http://{host}").partition("://")[2].lower() == host
        # "none" is a browser too, without a page: an address that was typed, or a link of another program.
        if not same_origin or headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise Refused(HTTPStatus.FORBIDDEN, "requests from other sites are not answered")
        # A browser sends neither header to another site without asking it first.
        is_own = headers.get(HEADER) == "1" or BINARY_HEADER in headers
        if not is_own and not _is_json(headers.get("content-type", "")):
            detail = "a request that changes something needs `X-Penstock: 1` or a JSON content type"
            raise Refused(HTTPStatus.FORBIDDEN, detail)


def bearer_token(authorization: str) -> bytes:
    """Return the token of a Bearer header, or the password of a Basic one, which is how a URL contains a token."""
    scheme, _, value = authorization.partition(" ")
    match scheme.lower():
        case "bearer":
            return value.strip().encode("latin-1")
        case "basic":
            with suppress(binascii.Error, ValueError):
                return b64decode(value.strip(), validate=True).partition(b":")[2]
    return b""


def media_type_of(content_type: str) -> str:
    """Return a content type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def _is_json(content_type: str) -> bool:
    media_type = media_type_of(content_type)
    return media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json"))


def is_sent_by_another_site(headers: Mapping[bytes, bytes], *, may_change: bool) -> bool:
    """Return whether a browser sent the request for a page of another site, or a change for no page at all."""
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
    if origin is None and site is None:
        return False
    host = headers.get(b"host", b"").lower()
    allowed = (None, b"same-origin") if may_change else (None, b"same-origin", b"none")
    if site not in allowed or (origin or host).rpartition(b"://")[2].lower() != host:
        return True
    return not _is_local_name(host.decode("latin-1"))


def _require_local_name(host: str) -> None:
    if not _is_local_name(host):
        raise Refused(HTTPStatus.FORBIDDEN, "without a token this API answers to an IP address or localhost only")


def _is_local_name(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or "localhost"
        if name != "localhost" and not name.endswith(".localhost"):
            ip_address(name)
    except ValueError:
        return False
    return True
