"""AWS Signature Version 4, the server's side: who signed a request, and whether it was changed since.

The signature is in the Authorization header, or in the query string of a presigned request. No message shows a secret
or the expected signature.
"""

import hmac
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote, unquote_to_bytes

import msgspec

from penstock.domain.signing import AWS_ALGORITHM, aws_credential_scope, aws_signing_key, aws_string_to_sign
from penstock.sqs.auth.credentials import Credentials, Principal
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.names import Scope, is_account, is_region
from penstock.sqs.wire.protocol import SignedRequest

MAX_SKEW_MS = 15 * 60 * 1000
MAX_EXPIRES_S = 7 * 24 * 3600

_STAMP = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z")
_EXPIRES = re.compile(r"[0-9]{1,6}")
_PLAIN_PATH = re.compile(rb"(?:/[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)+")
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/")
_SCOPE = re.compile(rb"Credential=([^/,\s]+)/[0-9]+/([^/,\s]+)/")
_UNSIGNED = b"UNSIGNED-PAYLOAD"


class Claim(msgspec.Struct, frozen=True):
    """What a request states about its signature."""

    access_key: str
    date: str
    region: str
    service: str
    stamp: str
    signed_headers: list[bytes]
    signature: str
    expires_s: int | None = None

    @property
    def scope(self) -> str:
        """Return what the signature is valid for."""
        return aws_credential_scope(self.date, self.region, self.service)


def verify(request: SignedRequest, credentials: Credentials, now_ms: int) -> tuple[Principal, str]:
    """Return who signed the request, and for which region; SqsError if no known key did."""
    headers = canonical_values(request.headers)
    pairs = decoded_pairs(request.query_string) if request.query_string else []
    authorization = headers.get(b"authorization")
    if authorization is not None:
        claim = _from_header(authorization.decode("latin-1"), headers)
    elif presigned := [(name, value) for name, value in pairs if name.startswith(b"X-Amz-")]:
        claim = _from_query(presigned)
    else:
        raise SqsError(ErrorKind.MISSING_AUTHENTICATION_TOKEN, "The request is not signed.")
    key = credentials.find(claim.access_key)
    if key is None:
        raise SqsError(ErrorKind.INVALID_CLIENT_TOKEN_ID, "The access key in the request is not known here.")
    _check_time(claim, now_ms)
    _check_scope(claim)
    _check_coverage(claim, headers)
    text = aws_string_to_sign(claim.stamp, claim.scope, canonical_request(request, claim, headers, pairs))
    expected = hmac.digest(
        aws_signing_key(key.secret, claim.date, claim.region, claim.service), text.encode(), "sha256"
    )
    if not hmac.compare_digest(expected.hex().encode(), claim.signature.encode()):
        raise _mismatch("The signature does not match the request; check the secret and the signing method.")
    return key.principal, claim.region


def names_known_key(authorization: str, credentials: Credentials) -> bool:
    """Return whether an Authorization header names a known access key; its signature is not checked."""
    named = _CREDENTIAL.search(authorization)
    return named is not None and credentials.find(named[1]) is not None


def scope_of_open_request(authorization: bytes | None, query_string: bytes, home: Scope) -> Scope | None:
    """Return the region and account that a signature names, unchecked; None if there is none."""
    if authorization is not None:
        named = _SCOPE.search(authorization)
    elif b"X-Amz-Credential=" in query_string:
        named = _SCOPE.search(b"Credential=" + unquote_to_bytes(query_string.partition(b"X-Amz-Credential=")[2]))
    else:
        return None
    if named is None:
        return None
    return scope_of(named[2].decode("latin-1"), None, named[1].decode("latin-1"), home)


def scope_of(region: str, account: str | None, access_key: str, home: Scope) -> Scope:
    """Return the scope of a signed request; a key without an account has the server's, unless its name is one."""
    return Scope(
        region if is_region(region) else home.region,
        account or (access_key if is_account(access_key) else home.account),
    )


def canonical_values(headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return headers by lower-case name, with white space collapsed and values of a name joined by commas."""
    found: dict[bytes, bytes] = {}
    for raw_name, raw_value in headers:
        name = raw_name.lower()
        value = b" ".join(raw_value.split()) if b" " in raw_value or b"\t" in raw_value else raw_value
        found[name] = b"%b,%b" % (found[name], value) if name in found else value
    return found


def decoded_pairs(query_string: bytes) -> list[tuple[bytes, bytes]]:
    """Return the decoded parameters of a query string, in order."""
    # A plus is a space, as in the form parser: what is signed must be what is read.
    split = (pair.partition(b"=") for pair in query_string.replace(b"+", b" ").split(b"&"))
    return [(unquote_to_bytes(name), unquote_to_bytes(value)) for name, _, value in split]


def _from_header(authorization: str, headers: dict[bytes, bytes]) -> Claim:
    algorithm, _, rest = authorization.partition(" ")
    if algorithm != AWS_ALGORITHM:
        raise _incomplete(f"The Authorization header must begin with {AWS_ALGORITHM}.")
    parts: dict[str, str] = {}
    for item in rest.split(","):
        name, _, value = item.strip().partition("=")
        _put_once(parts, name, value)
    stamp = headers.get(b"x-amz-date", b"").decode("latin-1")
    return _claim(parts, "", stamp or _stamp_of_http_date(headers.get(b"date", b"").decode("latin-1")))


def _from_query(presigned: list[tuple[bytes, bytes]]) -> Claim:
    parts: dict[str, str] = {}
    for name, value in presigned:
        _put_once(parts, name.decode("latin-1"), value.decode("latin-1"))
    if parts.get("X-Amz-Algorithm") != AWS_ALGORITHM:
        raise _incomplete(f"X-Amz-Algorithm must be {AWS_ALGORITHM}.")
    expires = parts.get("X-Amz-Expires", "")
    if not _EXPIRES.fullmatch(expires) or not 1 <= int(expires) <= MAX_EXPIRES_S:
        raise _incomplete(f"X-Amz-Expires must be 1 to {MAX_EXPIRES_S} seconds.")
    return _claim(parts, "X-Amz-", parts.get("X-Amz-Date", ""), int(expires))


def _put_once(parts: dict[str, str], name: str, value: str) -> None:
    if name in parts:
        raise _incomplete(f"{name[:100]!r} appears twice in the request's signature.")
    parts[name] = value


def _claim(parts: dict[str, str], prefix: str, stamp: str, expires_s: int | None = None) -> Claim:
    for name in ("Credential", "SignedHeaders", "Signature"):
        if not parts.get(prefix + name):
            raise _incomplete(f"The request's signature requires {prefix}{name}.")
    if not stamp:
        raise _incomplete("The request's signature requires a date: X-Amz-Date or, in a header, Date.")
    credential = parts[prefix + "Credential"].rsplit("/", 4)
    if len(credential) != 5 or not all(credential) or credential[4] != "aws4_request":
        raise _incomplete("Credential must be <access key>/<date>/<region>/<service>/aws4_request.")
    signed_headers = parts[prefix + "SignedHeaders"].encode("latin-1").split(b";")
    access_key, date, region, service, _ = credential
    return Claim(access_key, date, region, service, stamp, signed_headers, parts[prefix + "Signature"], expires_s)


def _stamp_of_http_date(text: str) -> str:
    if not text:
        return ""
    try:
        date = parsedate_to_datetime(text)
        return (date.astimezone(UTC) if date.tzinfo else date).strftime("%Y%m%dT%H%M%SZ")
    except (ValueError, TypeError, IndexError, OverflowError):
        raise _incomplete("The Date header is not a date.") from None


def _check_time(claim: Claim, now_ms: int) -> None:
    signed_ms = _epoch_ms(claim.stamp)
    until_ms = signed_ms + (MAX_SKEW_MS if claim.expires_s is None else claim.expires_s * 1000)
    if not signed_ms - MAX_SKEW_MS <= now_ms <= until_ms:
        reason = "has expired" if now_ms > until_ms else "is more than 15 minutes ahead of the server's clock"
        raise SqsError(ErrorKind.REQUEST_TIME_TOO_SKEWED, f"The signature of {claim.stamp} {reason}.")


@lru_cache(maxsize=256)
def _epoch_ms(stamp: str) -> int:
    parts = _STAMP.fullmatch(stamp)
    try:
        if parts is not None:
            year, month, day, hour, minute, second = map(int, parts.groups())
            return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        pass
    raise _incomplete("The date must be in ISO 8601 basic format, such as 20260131T235959Z.")


def _check_scope(claim: Claim) -> None:
    if claim.date != claim.stamp[:8]:
        raise _mismatch("The date in Credential is not the day of the request's date.")
    if claim.service != "sqs":
        raise _mismatch("Credential should be scoped to the service 'sqs'.")


def _check_coverage(claim: Claim, headers: dict[bytes, bytes]) -> None:
    """Check that the headers that decide what is done, and where, are signed."""
    required = (b"host", b"x-amz-target") if b"x-amz-target" in headers else (b"host",)
    for name in required:
        if name not in claim.signed_headers:
            raise _incomplete(f"{name.decode()} must be a signed header.")
    for name in claim.signed_headers:
        if name not in headers:
            raise _mismatch(f"The signed header {name[:100].decode('latin-1')!r} is not in the request.")


def canonical_request(
    request: SignedRequest, claim: Claim, headers: dict[bytes, bytes], pairs: list[tuple[bytes, bytes]]
) -> bytes:
    """Return the form of a request that both sides hash."""
    lines = (
        request.method.encode(),
        _canonical_path(request.path),
        _canonical_query(pairs, presigned=claim.expires_s is not None),
        b"".join([b"%b:%b\n" % (name, headers[name]) for name in claim.signed_headers]),
        b";".join(claim.signed_headers),
        _payload_hash(request, headers),
    )
    return b"\n".join(lines)


def _canonical_path(path: bytes) -> bytes:
    """Return the path without dot segments and empty ones, encoded once more, as all services but S3 require."""
    if path == b"/" or _PLAIN_PATH.fullmatch(path):
        return path
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            del kept[-1:]
        elif segment not in (b"", b"."):
            kept.append(segment)
    end = b"/" if kept and path.endswith(b"/") else b""
    return quote(b"/" + b"/".join(kept) + end, safe="/~").encode()


def _canonical_query(pairs: list[tuple[bytes, bytes]], *, presigned: bool) -> bytes:
    encoded = sorted(
        (quote(name, safe="~"), quote(value, safe="~"))
        for name, value in pairs
        if not (presigned and name == b"X-Amz-Signature")
    )
    return "&".join(f"{name}={value}" for name, value in encoded).encode()


def _payload_hash(request: SignedRequest, headers: dict[bytes, bytes]) -> bytes:
    claimed = headers.get(b"x-amz-content-sha256")
    if claimed == _UNSIGNED:
        return _UNSIGNED
    actual = sha256(request.body).hexdigest().encode()
    if claimed is not None and claimed != actual:
        raise _mismatch("The body does not match the hash in x-amz-content-sha256.")
    return actual


def _incomplete(message: str) -> SqsError:
    return SqsError(ErrorKind.INCOMPLETE_SIGNATURE, message)


def _mismatch(message: str) -> SqsError:
    return SqsError(ErrorKind.SIGNATURE_DOES_NOT_MATCH, message)
