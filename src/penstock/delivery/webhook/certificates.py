"""Client certificates of deliveries: what may be stored, and a client with connections of its own for each."""

import os
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from tempfile import NamedTemporaryFile

import msgspec

from penstock.delivery.attempt import Client
from penstock.delivery.http.client import HttpClient
from penstock.domain.errors import InvalidArgument
from penstock.domain.subscription import CertificateWithKey

MOST_CLIENTS = 1000


class CertificateFacts(msgspec.Struct, frozen=True):
    """Whose a certificate is, and until when it is valid."""

    subject: str
    expires_at: datetime


@lru_cache(maxsize=1000)
def facts_of(certificate: str) -> CertificateFacts:
    """Return the facts of the first certificate of a PEM text; InvalidArgument if there is none."""
    # Imported when it is used: few subscriptions have a certificate, and the import costs every start 20 ms.
    from cryptography import x509

    try:
        first = x509.load_pem_x509_certificates(certificate.encode())[0]
    except ValueError:
        raise InvalidArgument(
            "the client certificate is not PEM: it begins with -----BEGIN CERTIFICATE-----, the client's own first"
        ) from None
    return CertificateFacts(first.subject.rfc4514_string(), first.not_valid_after_utc)


def checked_certificate(given: CertificateWithKey, now_ms: int) -> CertificateWithKey:
    """Return a certificate that deliveries can show; InvalidArgument says what is wrong, without the private key."""
    facts = facts_of(given.certificate)
    if facts.expires_at <= datetime.fromtimestamp(now_ms / 1000, UTC):
        raise InvalidArgument(
            f"the client certificate of {facts.subject} expired at {facts.expires_at:%Y-%m-%d %H:%M} UTC"
        )
    if "ENCRYPTED" in given.private_key:
        raise InvalidArgument("the private key has a passphrase: give it without, as `openssl pkey -in FILE` prints it")
    try:
        loaded_context(given, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    except ssl.SSLError as error:
        # Without the error's own text, which names a file of no use to the caller.
        reason = "it belongs to another certificate" if error.reason == "KEY_VALUES_MISMATCH" else "it is not PEM"
        raise InvalidArgument(f"the private key of the client certificate cannot be used: {reason}") from None
    return given


def loaded_context(certificate: CertificateWithKey, context: ssl.SSLContext) -> ssl.SSLContext:
    """Return a TLS context that shows a certificate."""
    with _file_of(f"{certificate.certificate}\n{certificate.private_key}") as path:
        # An empty password, or OpenSSL would ask for one at the terminal.
        context.load_cert_chain(path, password="")
    return context


@contextmanager
def _file_of(text: str) -> Iterator[str]:
    """Provide a text as a file, which OpenSSL needs: in memory where the system can, else one that only we may read."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("certificate"), "w") as memory:
            memory.write(text)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
        return
    with NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        yield file.name


class CertifiedClients:
    """A client for each certificate, so that no delivery uses a connection that another certificate has opened."""

    def __init__(
        self,
        new_client: Callable[[ssl.SSLContext], HttpClient],
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._new_client = new_client
        self._trust = trust
        self._known: OrderedDict[CertificateWithKey, HttpClient] = OrderedDict()

    def of(self, certificate: CertificateWithKey) -> Client:
        """Return the client of a certificate; InvalidArgument if it cannot be used."""
        client = self._known.get(certificate)
        if client is None:
            try:
                context = loaded_context(certificate, self._trust())
            except ssl.SSLError as error:
                raise InvalidArgument(f"the client certificate cannot be used: {error.reason}") from None
            client = self._known[certificate] = self._new_client(context)
            if len(self._known) > MOST_CLIENTS:
                self._known.popitem(last=False)[1].retire()
        self._known.move_to_end(certificate)
        return client

    def close(self) -> None:
        """Close all connections."""
        for client in self._known.values():
            client.close()
