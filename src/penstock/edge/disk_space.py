"""Whether the disk of a data directory is full, as its writes report it, or nearly full.

From the low-water mark on nothing new is taken, so that what is there can still be settled: that needs room too.
"""

import logging
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from penstock.domain.limits import MIB

LEAST_FREE_BYTES = 256 * MIB
"""A disk with less free space counts as full: a batch, its log and a checkpoint must fit."""

LOW_WATER_BYTES = 64 * MIB
"""With less free space nothing new is taken."""

_LOOK_S = 0.1

FreeBytes = Callable[[Path], int]

log = logging.getLogger(__name__)


def free_bytes(place: Path) -> int:
    """Return how much this user may still write to the disk of a path; raise OSError if that is unknown."""
    return shutil.disk_usage(place).free


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether SQLite reports that its disk is full."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


class DiskSpace:
    """The disk of a directory: full from a write that fails for lack of space until one succeeds or space is freed.

    Reading the state writes nothing, and asks the disk only while it is full.
    """

    def __init__(self, directory: Path, free: FreeBytes = free_bytes) -> None:
        self._directory = directory
        self._free = free
        self._needed_bytes: int | None = None
        self._looked_s = float("-inf")
        self._lack: str | None = None

    def write_succeeded(self) -> None:
        """Record a successful write."""
        self._needed_bytes = None

    def write_failed(self, error: BaseException | None) -> None:
        """Record a failed write; the reason may be another one."""
        # More than is free now: a write may fail for a limit other than the disk's.
        self._needed_bytes = self._free_or_zero() + LEAST_FREE_BYTES if is_disk_full(error) else None

    @property
    def is_exhausted(self) -> bool:
        """Whether the latest write failed for lack of space, even if space has been freed since."""
        return self._needed_bytes is not None

    def problem(self) -> str | None:
        """Return what is wrong and what to do, in one sentence; None if the disk is not known to be full."""
        needed_bytes = self._needed_bytes
        if needed_bytes is None or (found_bytes := self._free_or_zero()) >= needed_bytes:
            return None
        free_mib, needed_mib = found_bytes // MIB, needed_bytes // MIB
        return (
            f"the disk of {self._directory} is full: {free_mib} MiB are free; free up space there until {needed_mib} "
            "MiB are, or move the data to a larger disk"
        )

    def lack(self) -> str | None:
        """Return why nothing new can be taken, and what to do; None above the low-water mark. Asks now and then."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s, before = now_s, self._lack
            self._lack = self._lack_now()
            if self._lack is not None and before is None:
                log.error(self._lack)
        return self._lack

    def _lack_now(self) -> str | None:
        try:
            found_bytes = self._free(self._directory)
        except OSError:
            return None  # the write will tell
        if found_bytes >= LOW_WATER_BYTES:
            return None
        return (
            f"the disk of {self._directory} is nearly full: {found_bytes // MIB} MiB are free, and below "
            f"{LOW_WATER_BYTES // MIB} MiB nothing new is taken; free up space there, or move the data to a larger disk"
        )

    def _free_or_zero(self) -> int:
        try:
            return self._free(self._directory)
        except OSError:
            return 0
