"""Checkpoints of SQLite's write-ahead log, done beside the writer so that no commit waits for them.

A thread copies the log into the database, which may take a tenth of a second, while the writer continues. The writer
itself copies the little that was written in that time after its next commit, because SQLite restarts its log only when
all of it is copied.
"""

import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

log = logging.getLogger(__name__)

_CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"
# When a checkpoint is worth it, how much the writer may copy itself, and when the log must not grow further.
_DUE_BYTES = 32 * 1024 * 1024
_REST_BYTES = _DUE_BYTES // 8
_MOST_BYTES = 8 * _DUE_BYTES


class Checkpoints:
    """Counts what is written to the log, and copies it in time; called only by the writer."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._thread: ThreadPoolExecutor | None = None
        self._copying: Future[None] | None = None
        self._new_bytes = 0
        """Written since the last copy started."""
        self._log_bytes = 0
        """Written since the log was restarted."""
        self._most_bytes = _MOST_BYTES

    def wrote(self, writer: sqlite3.Connection, size_bytes: int) -> None:
        """Record that the writer has committed this many bytes."""
        self._new_bytes += size_bytes
        self._log_bytes += size_bytes
        if self._copying is not None and self._copying.done():
            self._copying = None
            if self._new_bytes <= _REST_BYTES:
                self._copy_rest(writer)
        if self._log_bytes >= self._most_bytes:
            self._copy_rest(writer)
        elif self._new_bytes >= _DUE_BYTES and self._copying is None:
            self._begin()

    def close(self) -> None:
        """Wait for a copy in progress."""
        if self._thread is not None:
            self._thread.shutdown()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "penstock-checkpoint")
        self._new_bytes = 0
        self._copying = self._thread.submit(self._copy)

    def _copy(self) -> None:
        """Copy the log; the statement runs without the interpreter lock."""
        try:
            connection = self._connect()
            try:
                connection.execute(_CHECKPOINT).fetchone()
            finally:
                connection.close()
        except sqlite3.Error as error:
            log.warning("the write-ahead log was not copied into its database: %s", error)

    def _copy_rest(self, writer: sqlite3.Connection) -> None:
        """Copy the rest; the next commit restarts the log unless a reader uses it."""
        self._new_bytes = 0
        try:
            busy, in_log, copied = writer.execute(_CHECKPOINT).fetchone()
        except sqlite3.Error as error:
            # What was committed stays in the log.
            log.warning("the write-ahead log was not copied into its database: %s", error)
            busy = True
        if busy or in_log != copied:
            self._most_bytes = self._log_bytes + _DUE_BYTES
        else:
            self._log_bytes, self._most_bytes = 0, _MOST_BYTES
