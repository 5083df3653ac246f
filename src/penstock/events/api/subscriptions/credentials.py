"""Checks and converts what deliveries of a subscription show its endpoint, and shows it without its secrets."""

import msgspec

from penstock.client.types import ClientCertificate, ClientCertificateView, OAuth2, OAuth2View
from penstock.delivery import SEALED, Undeliverable, checked_certificate, facts_of, parse_target
from penstock.domain.errors import InvalidArgument
from penstock.domain.subscription import CertificateWithKey, OAuth2Client, Subscription
from penstock.events.process import MESSAGE_PREFIXES
from penstock.ops.telemetry import MASK


def stored_oauth2(given: OAuth2 | None, before: OAuth2Client | None = None) -> OAuth2Client | None:
    """Return the credentials as they are kept; a mask stands for the secret that is kept already."""
    if given is None:
        return None
    try:
        parse_target(given.token_url)
    except Undeliverable as error:
        raise InvalidArgument(f"oauth2.tokenUrl is not a URL to ask: {error.message.partition(': ')[2]}") from error
    client = OAuth2Client(**msgspec.structs.asdict(given))
    if client.client_secret.startswith(SEALED):
        raise InvalidArgument(f"oauth2.clientSecret must not begin with {SEALED!r}, as encrypted ones do")
    if client.client_secret != MASK:
        return client
    if before is None or before.token_url != client.token_url:
        # A secret must not be sent to a place that whoever knows it has not chosen.
        raise InvalidArgument("give oauth2.clientSecret: it is kept only while tokenUrl stays the same")
    return msgspec.structs.replace(client, client_secret=before.client_secret)


def stored_certificate(given: ClientCertificate | None, now_ms: int) -> CertificateWithKey | None:
    """Return the certificate as it is kept; InvalidArgument says what is wrong with it."""
    return None if given is None else checked_certificate(CertificateWithKey(*msgspec.structs.astuple(given)), now_ms)


def check_credentials(subscription: Subscription) -> Subscription:
    """Return the subscription; InvalidArgument if its target can use none of its credentials."""
    target = subscription.target
    if subscription.oauth2 is not None:
        if target.startswith(MESSAGE_PREFIXES):
            raise InvalidArgument("oauth2 is for a target that is a URL")
        if any(name.lower() == "authorization" for name in subscription.headers):
            raise InvalidArgument("oauth2 sets the header authorization: leave one of the two out")
    if subscription.client_certificate is not None and not target.lower().startswith("https://"):
        raise InvalidArgument("a client certificate is for a target that begins with https://")
    return subscription


def oauth2_view(client: OAuth2Client | None) -> OAuth2View | None:
    """Return credentials without their secret."""
    return None if client is None else OAuth2View(**msgspec.structs.asdict(client) | {"client_secret": MASK})


def certificate_view(certificate: CertificateWithKey | None) -> ClientCertificateView | None:
    """Return whose a certificate is, and until when it is valid."""
    if certificate is None:
        return None
    facts = facts_of(certificate.certificate)
    return ClientCertificateView(facts.subject, facts.expires_at)
