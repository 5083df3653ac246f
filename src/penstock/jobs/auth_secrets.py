"""The secrets that sign the process endpoint's tokens: from the settings, else from a file in the data directory."""

import os
from base64 import urlsafe_b64encode
from pathlib import Path

from penstock.domain.errors import FailedPrecondition, Unavailable
from penstock.edge.chance import random_bytes
from penstock.jobs.auth_token import LEAST_SECRET_BYTES
from penstock.ops.config.dispatch_options import JobsOptions

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
