"""The tokens that prove to the process endpoint that our scheduler caused a request, and the secrets that sign them.

A token is `v1.EXPIRY.SIGNATURE`: it is valid for one job until a second since the epoch. It outlives the retention of
every SQS queue, so that a pointer is good for as long as the queue keeps it. Where a queue keeps messages for ever, a
job with an expired token is published with a new one (`dispatch/recovery.py`).
"""

import hmac
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable
from penstock.domain.limits import SECOND_MS
from penstock.edge.private_files import OWNER_ONLY, private_directory
from penstock.edge.randomness import random_bytes
from penstock.ops.config import JobsOptions

LIFETIME_S = 15 * 86_400
"""A day more than the longest retention of an SQS queue."""

LEAST_SECRET_BYTES = 16
FILE_NAME = "dispatch.secret"
_NEW_SECRET_BYTES = 32
_FORM = re.compile(r"v1\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")


class AuthTokens:
    """Issues tokens with the first secret and accepts those of any, so that a secret can be replaced."""

    def __init__(self, secrets: Sequence[bytes], lifetime_s: int = LIFETIME_S) -> None:
        if not secrets or any(len(secret) < LEAST_SECRET_BYTES for secret in secrets):
            raise InvalidArgument(f"tokens need at least one secret of {LEAST_SECRET_BYTES} bytes or more")
        # Keyed in advance, which saves half of the work of a signature.
        self._signers = tuple(hmac.new(secret, digestmod="sha256") for secret in secrets)
        self._lifetime_s = lifetime_s

    def token(self, job_id: str, now_ms: int) -> str:
        """Return a short-lived token that is valid for this job only."""
        expiry = str(now_ms // SECOND_MS + self._lifetime_s)
        return f"v1.{expiry}.{_signature(self._signers[0], job_id, expiry)}"

    def check(self, token: str, job_id: str, now_ms: int) -> bool:
        """Return whether a token is valid for this job now."""
        form = _FORM.fullmatch(token)
        if form is None or now_ms >= int(form[1]) * SECOND_MS:
            return False
        # Every secret is tried, so that the time taken does not reveal which one matches.
        return sum(hmac.compare_digest(_signature(each, job_id, form[1]), form[2]) for each in self._signers) > 0


def _signature(signer: hmac.HMAC, job_id: str, expiry: str) -> str:
    signing = signer.copy()
    signing.update(f"penstock dispatch {expiry} {job_id}".encode(errors="replace"))
    return urlsafe_b64encode(signing.digest()).decode().rstrip("=")


def auth_secrets(options: JobsOptions, directory: Path | None) -> tuple[bytes, ...]:
    """Return the secrets, the one that signs first: from the settings, else from a file in `directory`.

    `directory` is None where the database is on a server.
    """
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
        first = _stored_secret(directory / FILE_NAME)
    return (first, previous) if previous else (first,)


def _stored_secret(path: Path) -> bytes:
    """Return the secret in the file; the first process creates it."""
    try:
        if not path.exists():
            _create_secret(path)
        secret = path.read_bytes().strip()
    except OSError as error:
        raise Unavailable(f"cannot store a secret in {path}: {error.strerror}; set jobs.auth_secret instead") from error
    if len(secret) < LEAST_SECRET_BYTES:
        raise FailedPrecondition(f"{path} does not contain a secret: delete it, and a new one is created")
    return secret


def _create_secret(path: Path) -> None:
    private_directory(path.parent)
    # Written to a draft and linked, so that no process reads half a secret and the first of two wins.
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWNER_ONLY)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(urlsafe_b64encode(random_bytes(_NEW_SECRET_BYTES)))
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
