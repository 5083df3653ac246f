"""The bytes of a request to SQS: AWS JSON 1.0 in a POST, signed by Signature Version 4 if there is a key.

Always the same few headers, so their canonical form is written down instead of worked out.
"""

import hmac
from datetime import UTC, datetime
from hashlib import sha256

from penstock.domain.aws_signature import ALGORITHM, credential_scope, signing_key, string_to_sign
from penstock.sources.sqs_credentials import AwsKey

_SERVICE = "sqs"
_CONTENT_TYPE = "application/x-amz-json-1.0"


class RequestWriter:
    """Writes requests to one host."""

    def __init__(self, host_header: str, region: str, key: AwsKey | None) -> None:
        self._host = host_header
        self._region = region
        self._key = key

    def write(self, action: str, body: bytes, now_ms: int) -> bytes:
        """A request for an action."""
        head = (
            f"POST / HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
            f"X-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {len(body)}\r\n"
        )
        if self._key is not None:
            head += self._signature(self._key, action, body, now_ms)
        return f"{head}\r\n".encode() + body

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
        scope = credential_scope(stamp[:8], self._region, _SERVICE)
        text = string_to_sign(stamp, scope, canonical)
        signature = hmac.digest(signing_key(key.secret, stamp[:8], self._region, _SERVICE), text.encode(), "sha256")
        return (
            f"X-Amz-Date: {stamp}\r\n{token}Authorization: {ALGORITHM} Credential={key.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature.hex()}\r\n"
        )
