"""Flushing a file: from then on, what was written to it survives a power cut."""

import fcntl
import os
import sys
from pathlib import Path

from penstock.queue.errors import StoreFailed


class FileFlush:
    """The file that a store appends to, which has to be flushed before anybody may rely on what was written.

    After a flush that failed nobody knows what of the file is on the disk, and a second flush would not tell: the
    kernel reports an error once. So the store takes nothing more until it is opened anew and reads what is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._broken: str | None = None
        directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)  # the file may be new, and its name has to survive, too
        finally:
            os.close(directory)

    def fileno(self) -> int:
        """The descriptor to flush."""
        return self._file

    def wait(self) -> None:
        """Flush, and return when it is done; StoreFailed when it is not."""
        try:
            if sys.platform == "darwin":
                # A plain fsync leaves the data in the drive's cache.
                fcntl.fcntl(self._file, fcntl.F_FULLFSYNC)
            else:
                os.fdatasync(self._file)
        except OSError as error:
            raise self.failed(error) from error

    def failed(self, error: OSError) -> StoreFailed:
        """A flush failed; gives what its callers are told."""
        self._broken = f"{self._path} could not be flushed to its disk ({error}): look after the disk, then restart"
        return StoreFailed(self._broken)

    def check(self) -> None:
        """StoreFailed once a flush has failed."""
        if self._broken is not None:
            raise StoreFailed(self._broken)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)
