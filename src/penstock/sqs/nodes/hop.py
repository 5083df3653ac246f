"""A request on its way from one node to another: signed with the cluster's secret, with the identity of its caller.

    x-penstock-hop:    milliseconds.shard.woken.digest.signature
    x-penstock-caller: the identity, as JSON in base64

The digest covers method, path, action and body; the signature covers everything else and the digest.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest

import msgspec

from penstock.delivery import Headers
from penstock.domain.limits import MINUTE_MS
from penstock.edge.clock import Clock, wall_ms
from penstock.http.server import Exchange
from penstock.sqs.auth.caller import Hop, Identity, SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.names import Scope

_HOP, _IDENTITY = "x-penstock-hop", "x-penstock-caller"
_TARGET = b"x-amz-target"
# As long as AWS lets the clocks of a client and a server differ.
_MOST_APART_MS = 15 * MINUTE_MS
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Identity).decode


class Hops:
    """Signs requests to other nodes, and checks those of other nodes."""

    def __init__(self, secret: bytes, clock: Clock) -> None:
        self._secret = secret
        self._clock = clock

    def headers(self, hop: Hop, caller: SqsCaller, method: str, path: bytes, target: bytes, body: bytes) -> Headers:
        """Return the headers that make a request one of this node, for a caller."""
        identity = _identity_of(caller.host, caller.admin, tuple(caller.notes.items()), caller.scope, caller.secure)
        digest = _digest(method, path, target, body)
        signed = f"{wall_ms(self._clock)}.{hop.shard}.{hop.woken:d}.{digest}"
        return (_HOP, f"{signed}.{self._signature(signed, identity)}"), (_IDENTITY, identity)

    def is_hop(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether the headers were signed by a node, lately; the body is checked later."""
        text = headers.get(_HOP.encode())
        return text is not None and self._is_signed(text.decode("latin-1"), headers)

    def caller(self, headers: Mapping[bytes, bytes], exchange: Exchange, json: bytes | None) -> SqsCaller:
        """Return the caller of a request for which `is_hop` is true; AccessDenied if it is not the one signed."""
        _, shard, woken, digest, _ = headers[_HOP.encode()].decode("latin-1").split(".")
        found = _digest(exchange.method, exchange.target, headers.get(_TARGET, b""), exchange.body)
        if not compare_digest(digest, found):
            raise SqsError(ErrorKind.ACCESS_DENIED, "The request is not the one that the other node signed.")
        identity = _identity_in(headers[_IDENTITY.encode()])
        return SqsCaller(
            identity.host,
            exchange.hung_up,
            admin=identity.admin,
            notes=identity.notes,
            json=json,
            scope=None if identity.scope is None else Scope(*identity.scope),
            secure=identity.secure,
            hop=Hop(shard, woken == "1"),
        )

    def _is_signed(self, text: str, headers: Mapping[bytes, bytes]) -> bool:
        signed, _, signature = text.rpartition(".")
        identity = headers.get(_IDENTITY.encode(), b"").decode("latin-1")
        if not text.isascii() or not compare_digest(signature, self._signature(signed, identity)):
            return False
        return abs(wall_ms(self._clock) - int(signed.partition(".")[0])) <= _MOST_APART_MS

    def _signature(self, signed: str, identity: str) -> str:
        return hmac_digest(self._secret, f"{signed}\n{identity}".encode(), "sha256").hex()


# Cached, as a node passes on many requests of few callers.


@lru_cache(1000)
def _identity_of(
    host: bytes, admin: bool, notes: tuple[tuple[str, str], ...], scope: Scope | None, secure: bool
) -> str:
    identity = Identity(host, admin, dict(notes), scope, secure)
    return urlsafe_b64encode(_encode(identity)).decode()


@lru_cache(1000)
def _identity_in(header: bytes) -> Identity:
    return _decode(urlsafe_b64decode(header))


def _digest(method: str, path: bytes, target: bytes, body: bytes) -> str:
    return sha256(b"%b %b\n%b\n%b" % (method.encode(), path, target, body)).hexdigest()
