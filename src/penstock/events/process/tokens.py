"""The token by which the process endpoint knows that a request was caused by our own scheduler.

A token is `v1.EXPIRY.SIGNATURE`: it is good for one job, until a second since the epoch, and nobody without a secret
can make one. A refused one costs nothing but time: the job's lease runs out, and it is published with a fresh one.

The secrets that sign the process endpoint's tokens: from the settings, else from a file in the data directory.
"""

import hmac
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable
from penstock.domain.limits import SECOND_MS
from penstock.edge.randomness import random_bytes
from penstock.ops.config import JobsOptions

LIFETIME_S = 3600
"""Longer than a job may be QUEUED before it is taken for lost, and published again."""

LEAST_SECRET_BYTES = 16

_FORM = re.compile(r"v1\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")


class AuthTokens:
    """Makes tokens with the first secret, and accepts those made with any: so a secret can be replaced."""

    def __init__(self, secrets: Sequence[bytes], lifetime_s: int = LIFETIME_S) -> None:
        if not secrets or any(len(secret) < LEAST_SECRET_BYTES for secret in secrets):
            raise InvalidArgument(f"tokens need at least one secret, and each {LEAST_SECRET_BYTES} bytes or more")
        # Each with its secret taken in already, which is half of the work of a signature.
        self._signers = tuple(hmac.new(secret, digestmod="sha256") for secret in secrets)
        self._lifetime_s = lifetime_s

    def token(self, job_id: str, now_ms: int) -> str:
        """A token that is good for this job only, and not for long."""
        expiry = str(now_ms // SECOND_MS + self._lifetime_s)
        return f"v1.{expiry}.{_signature(self._signers[0], job_id, expiry)}"

    def check(self, token: str, job_id: str, now_ms: int) -> bool:
        """Whether a token is good for this job now."""
        form = _FORM.fullmatch(token)
        if form is None or now_ms >= int(form[1]) * SECOND_MS:
            return False
        # Every secret is tried, so that the time taken does not tell which one fits.
        return sum(hmac.compare_digest(_signature(each, job_id, form[1]), form[2]) for each in self._signers) > 0


def _signature(signer: hmac.HMAC, job_id: str, expiry: str) -> str:
    signing = signer.copy()
    signing.update(f"penstock dispatch {expiry} {job_id}".encode(errors="replace"))
    return urlsafe_b64encode(signing.digest()).decode().rstrip("=")


FILE_NAME = "dispatch.secret"
_MADE_BYTES = 32


def auth_secrets(options: JobsOptions, directory: Path | None) -> tuple[bytes, ...]:
    """The secrets, the one that signs first. `directory` is None where the database is on a server."""
    named = {
        "jobs.auth_secret": options.auth_secret.encode(),
        "jobs.previous_auth_secret": options.previous_auth_secret.encode(),
    }
    for name, secret in named.items():
        if secret and len(secret) < LEAST_SECRET_BYTES:
            raise FailedPrecondition(f"{name} is too short to be a secret: give {LEAST_SECRET_BYTES} bytes or more")
    first, previous = named.values()
    if not first and directory is None:
        raise FailedPrecondition(
            "there is no secret to sign tokens with: set jobs.auth_secret, the same on every node of this database"
        )
    if not first and directory is not None:
        first = _kept_secret(directory / FILE_NAME)
    return (first, previous) if previous else (first,)


def _kept_secret(path: Path) -> bytes:
    """The secret in the file; whichever process comes first makes it."""
    try:
        if not path.exists():
            _make(path)
        secret = path.read_bytes().strip()
    except OSError as error:
        raise Unavailable(f"cannot keep a secret in {path}: {error.strerror}; set jobs.auth_secret instead") from error
    if len(secret) < LEAST_SECRET_BYTES:
        raise FailedPrecondition(f"{path} holds no secret: delete it, and a new one is made")
    return secret


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and linked: no other process reads half a secret, and the first of two that make one wins.
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(urlsafe_b64encode(random_bytes(_MADE_BYTES)))
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
