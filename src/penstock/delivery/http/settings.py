"""How requests are made."""

import msgspec

from penstock.domain.limits import KIB, MIB
from penstock.domain.outcome import ClientErrors
from penstock.ops.config import HttpVersion

# More of a body than this is read, but not kept; past the second limit it is not read either.
KEPT_BODY_BYTES = 64 * KIB
READ_BODY_BYTES = MIB


class HttpClientSettings(msgspec.Struct, frozen=True):
    """Limits of an HTTP client."""

    request_timeout_s: float = 900.0
    connect_timeout_s: float = 30.0
    http_version: HttpVersion = HttpVersion.HTTP_2
    max_connections: int = 5000  # to one scheme, host and port
    idle_s: float = 60.0
    # A connection is replaced after this, so that a change of the endpoint's address is noticed.
    max_age_s: float = 300.0
    kept_body_bytes: int = KEPT_BODY_BYTES
    read_body_bytes: int = READ_BODY_BYTES


class DeliverySettings(HttpClientSettings, frozen=True):
    """How deliveries are made."""

    client_errors: ClientErrors = ClientErrors.ACK


def own_part_settings(timeout_s: float, max_body_bytes: int) -> HttpClientSettings:
    """How another part of Penstock, or a server that an operator has named, is asked.

    One byte more than the limit is kept of an answer that is longer, so that the caller can see it.
    """
    return HttpClientSettings(
        request_timeout_s=timeout_s,
        connect_timeout_s=timeout_s,
        http_version=HttpVersion.HTTP_1_1,
        kept_body_bytes=max_body_bytes + 1,
        read_body_bytes=max_body_bytes,
    )
