"""Settings of the HTTP client."""

import msgspec

from penstock.domain.limits import KIB, MIB
from penstock.domain.outcome import ClientErrors
from penstock.ops.config import HttpVersion

# A body is kept up to the first limit, and read up to the second.
KEPT_BODY_BYTES = 64 * KIB
READ_BODY_BYTES = MIB


class HttpClientSettings(msgspec.Struct, frozen=True):
    """Limits of an HTTP client."""

    request_timeout_s: float = 900.0
    connect_timeout_s: float = 30.0
    http_version: HttpVersion = HttpVersion.HTTP_2
    max_connections: int = 5000  # per scheme, host and port
    idle_s: float = 60.0
    # Connections are replaced after this time, so that a change of the endpoint's address takes effect.
    max_age_s: float = 300.0
    kept_body_bytes: int = KEPT_BODY_BYTES
    read_body_bytes: int = READ_BODY_BYTES
    proxy: str = ""  # URL of an HTTP proxy, for hosts that have a name


class DeliverySettings(HttpClientSettings, frozen=True):
    """Settings of deliveries."""

    client_errors: ClientErrors = ClientErrors.ACK


def own_part_settings(timeout_s: float, max_body_bytes: int) -> HttpClientSettings:
    """Return the settings for requests to a part of Penstock, or to a server that the operator has configured.

    One byte more than the limit is kept, so that the caller can detect a longer answer.
    """
    return HttpClientSettings(
        request_timeout_s=timeout_s,
        connect_timeout_s=timeout_s,
        http_version=HttpVersion.HTTP_1_1,
        kept_body_bytes=max_body_bytes + 1,
        read_body_bytes=max_body_bytes,
    )
