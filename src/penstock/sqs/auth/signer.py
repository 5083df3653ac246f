"""AWS Signature Version 4, the client's side. It signs by the same rules by which `sigv4` verifies."""

import hmac
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec.structs import replace

from penstock.domain.signing import AWS_ALGORITHM, aws_signing_key, aws_string_to_sign
from penstock.sqs.auth.sigv4 import Claim, canonical_request, canonical_values, decoded_pairs
from penstock.sqs.wire.protocol import SignedRequest


@dataclass(frozen=True, slots=True)
class Signer:
    """An access key and the region it signs for."""

    access_key: str
    secret: str = field(repr=False)
    region: str
    session_token: str | None = field(default=None, repr=False)

    def signed(self, request: SignedRequest, now_ms: int) -> SignedRequest:
        """Return the request with its date and signature, which covers all of its headers, including Host."""
        stamp = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        added = [(b"X-Amz-Date", stamp.encode())]
        if self.session_token is not None:
            added.append((b"X-Amz-Security-Token", self.session_token.encode()))
        dated = replace(request, headers=[*request.headers, *added])
        return replace(dated, headers=[*dated.headers, (b"Authorization", self._authorization(dated, stamp))])

    def _authorization(self, request: SignedRequest, stamp: str) -> bytes:
        headers = canonical_values(request.headers)
        claim = Claim(self.access_key, stamp[:8], self.region, "sqs", stamp, sorted(headers), "")
        pairs = decoded_pairs(request.query_string) if request.query_string else []
        text = aws_string_to_sign(claim.stamp, claim.scope, canonical_request(request, claim, headers, pairs))
        key = aws_signing_key(self.secret, claim.date, claim.region, claim.service)
        return (
            f"{AWS_ALGORITHM} Credential={self.access_key}/{claim.scope}, "
            f"SignedHeaders={b';'.join(claim.signed_headers).decode()}, "
            f"Signature={hmac.digest(key, text.encode(), 'sha256').hex()}"
        ).encode()
