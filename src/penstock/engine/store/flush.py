"""Flushing a file, so that its contents survive a power failure: blocking, or asynchronously by the Linux kernel.

A thread that waits for the disk needs the interpreter lock afterwards, and takes it from the event loop at its busiest.
Linux's asynchronous I/O (io_submit) needs no thread: it signals completion by a file descriptor. Python has no module
for it, so the four system calls are made by number.
"""

import ctypes
import fcntl
import os
import platform
import sys
from pathlib import Path

from penstock.engine.errors import StoreFailed

# io_setup, io_destroy, io_submit, io_getevents.
_CALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
_FDATASYNC = 3
_FLAG_RESFD = 1


class FileFlush:
    """The file that a store appends to; it must be flushed before its contents can be relied on.

    After a failed flush it is unknown which parts of the file are on disk, and a second flush would not tell, because
    the kernel reports an error once. So the store accepts nothing more until it is opened again and has read the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._broken: str | None = None
        directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)  # the file may be new, and its name must survive too
        finally:
            os.close(directory)

    def fileno(self) -> int:
        """Return the descriptor to flush."""
        return self._file

    def wait(self) -> None:
        """Flush, and return when it is done; raise StoreFailed if it fails."""
        try:
            if sys.platform == "darwin":
                # A plain fsync leaves the data in the drive's cache.
                fcntl.fcntl(self._file, fcntl.F_FULLFSYNC)
            else:
                os.fdatasync(self._file)
        except OSError as error:
            raise self.failed(error) from error

    def failed(self, error: OSError) -> StoreFailed:
        """Record a failed flush and return the error for its callers."""
        self._broken = f"{self._path} could not be flushed to its disk ({error}): check the disk, then restart"
        return StoreFailed(self._broken)

    def check(self) -> None:
        """Raise StoreFailed once a flush has failed."""
        if self._broken is not None:
            raise StoreFailed(self._broken)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class _Request(ctypes.Structure):
    """An iocb of Linux, on little-endian machines."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("file", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("result_fd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class KernelFlush:
    """Flushes one file, one flush at a time; its descriptor is readable when a flush has ended."""

    def __init__(self, file: int) -> None:
        """Prepare to flush a file; raise OSError if the system or its container does not allow these calls."""
        numbers = _CALLS.get(platform.machine())
        if sys.platform != "linux" or numbers is None:
            raise OSError("no asynchronous flush on this platform")
        setup, self._destroy, self._submit, self._getevents = (ctypes.c_long(number) for number in numbers)
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        if self._syscall(setup, ctypes.c_long(1), ctypes.byref(self._context)) < 0:
            raise _last_error()
        self._result_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        request = _Request(opcode=_FDATASYNC, file=file, flags=_FLAG_RESFD, result_fd=self._result_fd)
        self._requests = (ctypes.POINTER(_Request) * 1)(ctypes.pointer(request))
        self._event = _Event()

    def fileno(self) -> int:
        """Return a descriptor that is readable once a flush has ended."""
        return self._result_fd

    def begin(self) -> None:
        """Start a flush; raise OSError if Linux refuses."""
        if self._syscall(self._submit, self._context, ctypes.c_long(1), self._requests) != 1:
            raise _last_error()

    def end(self) -> bool:
        """Return whether the flush has ended; raise OSError if it failed."""
        try:
            os.eventfd_read(self._result_fd)
        except BlockingIOError:
            return False
        one = ctypes.c_long(1)
        if self._syscall(self._getevents, self._context, one, one, ctypes.byref(self._event), None) != 1:
            raise _last_error()
        if self._event.result < 0:
            number = -self._event.result
            raise OSError(number, os.strerror(number))
        return True

    def close(self) -> None:
        """Release all resources; waits for a flush in progress."""
        self._syscall(self._destroy, self._context)
        os.close(self._result_fd)


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
