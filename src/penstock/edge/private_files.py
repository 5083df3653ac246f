"""Files that only the user who runs Penstock may read: a data directory holds payloads, headers and secrets."""

import os
import stat
from contextlib import suppress
from pathlib import Path

OWNER_ONLY = 0o600
_OWNER_DIRECTORY = 0o700
_OTHERS = 0o077
# The time, the databases of the parts with their logs, and the secret that signs tokens.
_KEPT = ("clock", "jobs.db*", "sqs.db*", "pubsub.db*", "dispatch.secret")


def private_directory(directory: Path) -> None:
    """Create a data directory for its owner alone, or close one of ours that others may read."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=_OWNER_DIRECTORY)
    except FileExistsError:
        _close(directory)


def create_private(path: str | Path) -> None:
    """Create a missing database for its owner alone; SQLite gives its logs the same mode."""
    # Whatever else is wrong with the place, SQLite reports.
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY))


def _close(directory: Path) -> None:
    kept = [path for name in _KEPT for path in directory.glob(name)]
    # A directory with other things in it, such as /tmp, is not ours to close.
    if kept or not any(directory.iterdir()):
        _restrict(directory, _OWNER_DIRECTORY)
    for path in kept:
        _restrict(path, OWNER_ONLY)


def _restrict(path: Path, mode: int) -> None:
    # A log of SQLite may disappear meanwhile.
    with suppress(FileNotFoundError):
        found = path.stat()
        if found.st_uid == os.geteuid() and found.st_mode & _OTHERS and not found.st_mode & stat.S_ISVTX:
            path.chmod(mode)
