"""Signatures: of webhooks, by the Standard Webhooks specification, and of AWS requests, by Signature Version 4.

A webhook is signed with HMAC-SHA256 over `id.timestamp.body`. Its receiver checks it with `verify`, or with any library
for that specification. Of AWS's signature this is what client and server share.
"""

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256

import msgspec

from penstock.domain.errors import InvalidArgument
from penstock.domain.limits import SECOND_MS

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
SECRET_PREFIX = "whsec_"
TOLERANCE_S = 300
AWS_ALGORITHM = "AWS4-HMAC-SHA256"

_VERSION = "v1,"
# A full stop would give two different deliveries the same signed text; other characters are invalid in a header.
_SIGNABLE_ID = re.compile(r"[!-\-/-~]+")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class Signature(msgspec.Struct, frozen=True):
    """The three headers of a signed delivery."""

    message_id: str
    timestamp: str
    signatures: str


def sign(secrets: Sequence[str], message_id: str, timestamp_s: int, body: bytes) -> Signature:
    """Return the headers of a delivery at this time, with one signature for each secret."""
    if _SIGNABLE_ID.fullmatch(message_id) is None:
        raise InvalidArgument(
            f"the message id {message_id[:100]!r} cannot be signed; use visible ASCII characters without a full stop"
        )
    content = _content(message_id, str(timestamp_s), body)
    signatures = " ".join([_VERSION + _signature(secret, content) for secret in secrets])
    return Signature(message_id, str(timestamp_s), signatures)


def verify(signature: Signature, body: bytes, secrets: Sequence[str], now_ms: int) -> bool:
    """Return whether one of the secrets signed this body and these headers within five minutes of now."""
    if _TIMESTAMP.fullmatch(signature.timestamp) is None:
        return False
    if abs(now_ms - int(signature.timestamp) * SECOND_MS) > TOLERANCE_S * SECOND_MS:
        return False
    content = _content(signature.message_id, signature.timestamp, body)
    expected = [(_VERSION + _signature(secret, content)).encode() for secret in secrets]
    given = signature.signatures.encode(errors="replace").split(b" ")
    # Every pair is compared, so that the time taken does not reveal which one matches.
    return sum(hmac.compare_digest(one, other) for one in expected for other in given) > 0


def key_of(secret: str) -> bytes:
    """Decode the key of a secret `whsec_<base64>`."""
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key or not secret.startswith(SECRET_PREFIX):
        raise InvalidArgument(f"a signing secret is malformed; it must be {SECRET_PREFIX} followed by base64")
    return key


def aws_credential_scope(date: str, region: str, service: str) -> str:
    """Return the scope of a signature: a day, a region and a service."""
    return f"{date}/{region}/{service}/aws4_request"


def aws_string_to_sign(stamp: str, scope: str, canonical_request: bytes) -> str:
    """Return the text that is signed: algorithm, time, scope, and the hash of the canonical request."""
    return f"{AWS_ALGORITHM}\n{stamp}\n{scope}\n{sha256(canonical_request).hexdigest()}"


@lru_cache(maxsize=1024)
def aws_signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    """Derive the key for one day, region and service from a secret."""
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _content(message_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{message_id}.{timestamp}.".encode(errors="replace") + body


def _signature(secret: str, content: bytes) -> str:
    signing = _signer(secret).copy()
    signing.update(content)
    return b64encode(signing.digest()).decode()


@lru_cache(maxsize=1024)
def _signer(secret: str) -> hmac.HMAC:
    """Return the start of a signature: to copy it costs a third of keying it again."""
    return hmac.new(key_of(secret), digestmod="sha256")
