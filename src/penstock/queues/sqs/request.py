"""Requests to SQS: AWS JSON 1.0 in a POST, signed by Signature Version 4 if there is a key.

The headers are always the same, so their canonical form is fixed. The key is that of Penstock's parts, if there is one
(`sqs.parts_key`), else it comes from AWS's environment variables, else from the shared credentials file.
"""

import configparser
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from penstock.delivery import RequestHead, Target
from penstock.domain.signing import AWS_ALGORITHM, aws_credential_scope, aws_signing_key, aws_string_to_sign

DEFAULT_REGION = "us-east-1"
PARTS_KEY = "PENSTOCK_SQS__PARTS_KEY"
_SERVICE = "sqs"
_CONTENT_TYPE = "application/x-amz-json-1.0"


@dataclass(frozen=True, slots=True)
class AwsKey:
    """An access key, whose secrets `repr` does not show."""

    access_key: str
    secret: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


class RequestWriter:
    """Writes request heads for one host."""

    def __init__(self, target: Target, region: str, key: AwsKey | None) -> None:
        self._target = target
        self._host = target.authority
        self._region = region
        self._key = key

    def head(self, action: str, body: bytes, now_ms: int) -> RequestHead:
        """Return the head of a request for an action, in HTTP/1.1 only."""
        signature = "" if self._key is None else self._signature(self._key, action, body, now_ms)
        opening = (
            f"POST / HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
            f"X-Amz-Target: AmazonSQS.{action}\r\n{signature}Content-Length: "
        )
        return RequestHead(self._target, (), opening.encode())

    def _signature(self, key: AwsKey, action: str, body: bytes, now_ms: int) -> str:
        stamp = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        names = "content-type;host;x-amz-date;x-amz-target"
        headers = f"content-type:{_CONTENT_TYPE}\nhost:{self._host}\nx-amz-date:{stamp}\n"
        token = ""
        if key.session_token is not None:
            names = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"
            headers += f"x-amz-security-token:{key.session_token}\n"
            token = f"X-Amz-Security-Token: {key.session_token}\r\n"
        headers += f"x-amz-target:AmazonSQS.{action}\n"
        canonical = f"POST\n/\n\n{headers}\n{names}\n{sha256(body).hexdigest()}".encode()
        scope = aws_credential_scope(stamp[:8], self._region, _SERVICE)
        text = aws_string_to_sign(stamp, scope, canonical)
        signature = hmac.digest(aws_signing_key(key.secret, stamp[:8], self._region, _SERVICE), text.encode(), "sha256")
        return (
            f"X-Amz-Date: {stamp}\r\n{token}Authorization: {AWS_ALGORITHM} Credential={key.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature.hex()}\r\n"
        )


def find_key(environment: Mapping[str, str] = os.environ) -> AwsKey | None:
    """Return the key to sign with; None if there is none, as for a local server without authentication."""
    key = _from_variables(environment) or _from_file(environment)
    name, _, parts_secret = environment.get(PARTS_KEY, "").partition(":")
    if name and parts_secret and (key is None or key.access_key != name):
        return AwsKey(name, parts_secret)
    return key


def _from_variables(environment: Mapping[str, str]) -> AwsKey | None:
    access_key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    session_token = environment.get("AWS_SESSION_TOKEN") or None
    return AwsKey(access_key, secret, session_token) if access_key and secret else None


def find_region(url_region: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the region to sign for: that of the queue URL, else of the environment."""
    return url_region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


def _from_file(environment: Mapping[str, str]) -> AwsKey | None:
    path = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser()
    # A secret may contain a percent sign.
    file = configparser.ConfigParser(interpolation=None)
    try:
        file.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return None
    profile = environment.get("AWS_PROFILE") or "default"
    if not file.has_section(profile):
        return None
    section = file[profile]
    access_key, secret = section.get("aws_access_key_id"), section.get("aws_secret_access_key")
    return AwsKey(access_key, secret, section.get("aws_session_token")) if access_key and secret else None
