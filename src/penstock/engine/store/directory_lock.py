"""A lock on a file beside the data, for one process at a time; it ends with the process."""

import fcntl
import os
from pathlib import Path

from penstock.domain.errors import InvalidArgument
from penstock.edge.private_files import OWNER_ONLY
from penstock.engine.errors import StoreFailed, StoreLocked

_LONGEST_PID = 20


class DirectoryLock:
    """An exclusive lock on a file that contains the pid of its owner."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock; raise StoreLocked if another process has it."""
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            holder = os.pread(descriptor, _LONGEST_PID, 0).decode(errors="replace") or "unknown"
            os.close(descriptor)
            message = f"{self._path} is locked by process {holder}: stop it, or use another data directory"
            raise StoreLocked(message) from None
        except OSError as error:
            os.close(descriptor)
            raise StoreFailed(f"the lock file {self._path} cannot be written: {error.strerror}") from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock; the file stays, because removing it could take it from the next owner."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT, OWNER_ONLY)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InvalidArgument(f"{self._path.parent} is not a directory: create it first") from error
        except OSError as error:
            raise StoreFailed(f"the lock file {self._path} cannot be opened: {error.strerror}") from error
