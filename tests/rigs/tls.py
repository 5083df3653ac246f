"""Certificates of our own for tests: an authority, and servers it vouches for."""

import datetime
import ssl
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@cache
def authority() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate authority no one else trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _certificate("test authority", key, "test authority", key, is_authority=True), key


def server_context(name: str, *protocols: str) -> ssl.SSLContext:
    """A server under a name, with the protocols it offers by ALPN."""
    certificate, key = certificate_and_key(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as directory:
        file = Path(directory) / "server.pem"
        file.write_bytes(certificate + key)
        context.load_cert_chain(file)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def certificate_and_key(name: str) -> tuple[bytes, bytes]:
    """The certificate of a server and its private key, in PEM."""
    issuer, issuer_key = authority()
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(name, key, issuer.subject.rfc4514_string().removeprefix("CN="), issuer_key)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


def authority_pem() -> bytes:
    """The authority's certificate, for clients that take a file."""
    return authority()[0].public_bytes(serialization.Encoding.PEM)


def trusting_context() -> ssl.SSLContext:
    """A client that trusts our authority, checked otherwise as strictly as any."""
    return ssl.create_default_context(cadata=authority_pem().decode())


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if is_authority:
        builder = builder.add_extension(
            x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True
        )
    else:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
