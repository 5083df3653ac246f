"""The parts of AWS Signature Version 4 that signing and verification share."""

import hmac
from functools import lru_cache
from hashlib import sha256

ALGORITHM = "AWS4-HMAC-SHA256"


def credential_scope(date: str, region: str, service: str) -> str:
    """Return the scope of a signature: a day, a region and a service."""
    return f"{date}/{region}/{service}/aws4_request"


def string_to_sign(stamp: str, scope: str, canonical_request: bytes) -> str:
    """Return the text that is signed: algorithm, time, scope, and the hash of the canonical request."""
    return f"{ALGORITHM}\n{stamp}\n{scope}\n{sha256(canonical_request).hexdigest()}"


@lru_cache(maxsize=1024)
def signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    """Derive the key for one day, region and service from a secret."""
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
