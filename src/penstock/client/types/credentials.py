"""What deliveries of a subscription show its endpoint: an OAuth2 token, a client certificate."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.client.types.fields import Text
from penstock.domain.limits import KIB

Pem = Annotated[str, Meta(min_length=1, max_length=24 * KIB)]
OptionalText = Annotated[str, Meta(max_length=2048, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]


class OAuth2(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """OAuth2 client credentials: deliveries carry a token that is fetched at `tokenUrl` and renewed in time.

    A change that sends `***` as the secret, as views show it, keeps the stored one.
    """

    token_url: Text
    client_id: Text
    client_secret: Text
    scope: OptionalText = ""
    audience: OptionalText = ""

    def __repr__(self) -> str:
        return f"OAuth2({self.client_id!r} at {self.token_url!r})"


class OAuth2View(msgspec.Struct, frozen=True, rename="camel"):
    """OAuth2 client credentials, their secret masked."""

    token_url: str
    client_id: str
    client_secret: str
    scope: str
    audience: str


class ClientCertificate(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A client certificate with its chain, and its private key without a passphrase, both in PEM."""

    certificate: Pem
    private_key: Pem

    def __repr__(self) -> str:
        return "ClientCertificate()"


class ClientCertificateView(msgspec.Struct, frozen=True, rename="camel"):
    """Whose a client certificate is, and until when it is valid; the private key is shown to no one."""

    subject: str
    expires_at: datetime
