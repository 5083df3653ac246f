"""Signatures: of webhooks, by the Standard Webhooks specification, and of AWS requests, by Signature Version 4.

A webhook is signed with HMAC-SHA256 or Ed25519 over `id.timestamp.body`. Its receiver checks it with `verify`, or with
any library for that specification. Of AWS's signature this is what client and server share.

`whsec_` and base64 is a secret of both sides (HMAC-SHA256, `v1`). `whsk_` and base64 is a private key of the sender, 32
bytes, or 64 with its public key behind it (Ed25519, `v1a`); receivers verify with the public one, `whpk_` and base64.
"""

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import InvalidArgument
from penstock.domain.limits import SECOND_MS

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SECRET_PREFIX = "whsec_"
PRIVATE_PREFIX = "whsk_"
PUBLIC_PREFIX = "whpk_"
KEY_BYTES = 32
ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
TOLERANCE_S = 300
AWS_ALGORITHM = "AWS4-HMAC-SHA256"

_VERSION = "v1,"
_ASYMMETRIC = "v1a,"
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
    signatures = " ".join([_signature(secret, content) for secret in secrets])
    return Signature(message_id, str(timestamp_s), signatures)


def verify(signature: Signature, body: bytes, secrets: Sequence[str], now_ms: int) -> bool:
    """Return whether a secret, or the owner of a public key, signed this body and these headers within five minutes."""
    if _TIMESTAMP.fullmatch(signature.timestamp) is None:
        return False
    if abs(now_ms - int(signature.timestamp) * SECOND_MS) > TOLERANCE_S * SECOND_MS:
        return False
    content = _content(signature.message_id, signature.timestamp, body)
    public = [each for each in secrets if each.startswith(PUBLIC_PREFIX)]
    expected = [_signature(secret, content).encode() for secret in secrets if secret not in public]
    given = signature.signatures.encode(errors="replace").split(b" ")
    # Every pair is compared, so that the time taken does not reveal which one matches.
    matching = sum(hmac.compare_digest(one, other) for one in expected for other in given)
    return matching > 0 or any(_is_signed_by(key, given, content) for key in public)


class SigningMethod(StrEnum):
    """How deliveries are signed."""

    HMAC = "hmac"
    """With a secret that the receiver has too."""
    ED25519 = "ed25519"
    """With a private key that never leaves Penstock; receivers verify with its public key."""


def secret_of(method: SigningMethod, key: bytes) -> str:
    """Return what signs with a key of 32 random bytes."""
    prefix = PRIVATE_PREFIX if method is SigningMethod.ED25519 else SECRET_PREFIX
    return prefix + b64encode(key).decode()


def method_of(secret: str) -> SigningMethod:
    """Return how a secret or a private key signs; InvalidArgument if it cannot."""
    if secret.startswith(PRIVATE_PREFIX):
        private_key(secret)
        return SigningMethod.ED25519
    key_of(secret)
    return SigningMethod.HMAC


def verifier_of(secret: str) -> str:
    """Return what a receiver verifies with: the secret itself, or the public key of a private one."""
    if not secret.startswith(PRIVATE_PREFIX):
        return secret
    return PUBLIC_PREFIX + b64encode(private_key(secret).public_key().public_bytes_raw()).decode()


def check_verifier(text: str) -> None:
    """Raise InvalidArgument unless signatures can be verified with a text."""
    if text.startswith(PUBLIC_PREFIX):
        public_key(text)
    else:
        key_of(text)


def key_of(secret: str) -> bytes:
    """Decode the key of a secret `whsec_<base64>`."""
    key = _decoded(secret, SECRET_PREFIX)
    if not key:
        raise InvalidArgument(f"a signing secret is malformed; it must be {SECRET_PREFIX} followed by base64")
    return key


@lru_cache(maxsize=1024)
def private_key(secret: str) -> "Ed25519PrivateKey":
    """Decode a private key `whsk_<base64>`."""
    # Imported when it is used: the import costs every start 20 ms.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = _decoded(secret, PRIVATE_PREFIX)
    if len(key) not in {KEY_BYTES, 2 * KEY_BYTES}:
        raise InvalidArgument(f"a private key is malformed; it must be {PRIVATE_PREFIX} and 32 or 64 bytes in base64")
    return Ed25519PrivateKey.from_private_bytes(key[:KEY_BYTES])


@lru_cache(maxsize=1024)
def public_key(text: str) -> "Ed25519PublicKey":
    """Decode a public key `whpk_<base64>`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = _decoded(text, PUBLIC_PREFIX)
    if len(key) != KEY_BYTES:
        raise InvalidArgument(f"a public key is malformed; it must be {PUBLIC_PREFIX} and 32 bytes in base64")
    return Ed25519PublicKey.from_public_bytes(key)


def _decoded(text: str, prefix: str) -> bytes:
    if not text.startswith(prefix):
        return b""
    try:
        return b64decode(text.removeprefix(prefix), validate=True)
    except (binascii.Error, ValueError):
        return b""


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
    if secret.startswith(PRIVATE_PREFIX):
        return _ASYMMETRIC + b64encode(private_key(secret).sign(content)).decode()
    signing = _signer(secret).copy()
    signing.update(content)
    return _VERSION + b64encode(signing.digest()).decode()


def _is_signed_by(key: str, given: Sequence[bytes], content: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    for each in given:
        if each.startswith(_ASYMMETRIC.encode()):
            with suppress(binascii.Error, ValueError, InvalidSignature):
                public_key(key).verify(b64decode(each.removeprefix(_ASYMMETRIC.encode()), validate=True), content)
                return True
    return False


@lru_cache(maxsize=1024)
def _signer(secret: str) -> hmac.HMAC:
    """Return the start of a signature: to copy it costs a third of keying it again."""
    return hmac.new(key_of(secret), digestmod="sha256")
