"""Whether the disk that data is kept on has room, as its writes have found it."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from penstock.domain.limits import MIB

LEAST_FREE_BYTES = 256 * MIB
"""With less than this a disk counts as full: a batch, its log and a checkpoint must fit."""

FreeBytes = Callable[[Path], int]


def free_bytes(place: Path) -> int:
    """How much this user may still write to the disk of a place; OSError if nobody can say."""
    return shutil.disk_usage(place).free


def is_for_lack_of_room(error: BaseException | None) -> bool:
    """Whether SQLite says that its disk is full."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


class DiskRoom:
    """The disk of a directory: full from a write that failed for it until one succeeds, or there is room again.

    To look writes nothing, and asks the disk only while it is full.
    """

    def __init__(self, directory: Path, free: FreeBytes = free_bytes) -> None:
        self._directory = directory
        self._free = free
        self._needed_bytes: int | None = None

    def kept(self) -> None:
        """A write succeeded."""
        self._needed_bytes = None

    def refused(self, error: BaseException | None) -> None:
        """A write failed, maybe for another reason."""
        # More than there was then: a write may fail for a limit that is not the disk's own.
        self._needed_bytes = self._free_or_none() + LEAST_FREE_BYTES if is_for_lack_of_room(error) else None

    @property
    def lacks(self) -> bool:
        """Whether the latest write failed for lack of room, whatever was done about it since."""
        return self._needed_bytes is not None

    def trouble(self) -> str | None:
        """What is wrong and what to do, in a sentence; None if the disk is not known to be full."""
        needed_bytes = self._needed_bytes
        if needed_bytes is None or (found_bytes := self._free_or_none()) >= needed_bytes:
            return None
        free_mib, needed_mib = found_bytes // MIB, needed_bytes // MIB
        return (
            f"the disk of {self._directory} is full: {free_mib} MiB are free; make room there until {needed_mib} MiB "
            "are, or move the data to a larger disk"
        )

    def _free_or_none(self) -> int:
        try:
            return self._free(self._directory)
        except OSError:
            return 0
