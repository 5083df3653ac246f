"""How deliveries are made."""

import msgspec

from penstock.domain.outcome import ClientErrors
from penstock.ops.config.router_options import HttpVersion


class DeliverySettings(msgspec.Struct, frozen=True):
    """Limits of deliveries; the time-outs are DELIVERY-REQUEST-3's."""

    request_timeout_s: float = 900.0
    connect_timeout_s: float = 30.0
    http_version: HttpVersion = HttpVersion.HTTP_2
    client_errors: ClientErrors = ClientErrors.ACK
    max_connections: int = 5000  # to one scheme, host and port
    idle_s: float = 60.0
    # A connection is replaced after this, so that a change of the endpoint's address is noticed.
    max_age_s: float = 300.0
