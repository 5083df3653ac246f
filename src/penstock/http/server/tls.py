"""The certificate of all HTTP and gRPC servers of this process.

It is read again when its files change, so that a renewed certificate needs no restart.
"""

import logging
import ssl
from pathlib import Path
from typing import NamedTuple

from penstock.http.errors import BadCertificate

log = logging.getLogger(__name__)


class Certificate(NamedTuple):
    """Files with a certificate chain and its private key, in PEM."""

    chain: Path
    key: Path


_used: Certificate | None = None


def use_certificate(files: Certificate | None) -> None:
    """Let the servers that this process starts from now on speak TLS."""
    global _used
    _used = files


def used_certificate() -> Certificate | None:
    """Return the certificate that servers start with, for worker processes."""
    return _used


class ServedCertificate:
    """A certificate in use."""

    def __init__(self, files: Certificate) -> None:
        self._files = files
        self._read_as = _state_of(files)
        self.context = _context_of(files)
        self.chain, self.key = _texts_of(files)

    def refresh(self) -> bool:
        """Read the files again if they have changed; keep what was read before if they are of no use."""
        state = _state_of(self._files)
        if state == self._read_as:
            return False
        self._read_as = state
        try:
            # Loading a pair that does not fit would leave the context with half of it.
            _context_of(self._files)
            self.context.load_cert_chain(*self._files)
            self.chain, self.key = _texts_of(self._files)
        except (BadCertificate, OSError) as error:
            log.error("the renewed certificate is not used: %s", error)
            return False
        log.info("the certificate %s was renewed", self._files.chain)
        return True


def served_certificate() -> ServedCertificate | None:
    """Return the certificate that a new server uses, if it uses one."""
    return None if _used is None else ServedCertificate(_used)


def _context_of(files: Certificate) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(*files)
    except ssl.SSLError as error:
        reason = (error.reason or "unreadable").replace("_", " ").lower()
        raise BadCertificate(
            f"{files.chain} and {files.key} are not a certificate and its private key in PEM: {reason}"
        ) from error
    except OSError as error:
        raise BadCertificate(
            f"cannot read the certificate {files.chain} or its key {files.key}: {error.strerror or error}"
        ) from error
    return context


def _texts_of(files: Certificate) -> tuple[bytes, bytes]:
    return files.chain.read_bytes(), files.key.read_bytes()


def _state_of(files: Certificate) -> tuple[int, ...]:
    """Return what changes when a file is replaced or written; 0 for one that is not there."""
    return tuple(_changed_ns(file) for file in files)


def _changed_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
