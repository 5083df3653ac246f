"""Flushing a file: from then on, what was written to it survives a power cut.

Flushing by Linux itself, which tells by a file descriptor when it is done: no thread waits, none has to be woken.

A thread that waits for the disk needs the interpreter afterwards, and takes it from the loop when that has most to do.
Linux's own asynchronous I/O (io_submit) flushes beside all that. Python has no module for it, so the four system calls
are made by number.
"""

import ctypes
import fcntl
import os
import platform
import sys
from pathlib import Path

from penstock.engine.errors import StoreFailed


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


# io_setup, io_destroy, io_submit, io_getevents.
_CALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
_FDATASYNC = 3
_TELL_BY_DESCRIPTOR = 1


class _Request(ctypes.Structure):
    """What Linux calls an iocb, on little-endian machines."""

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
        ("told_by", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class KernelFlush:
    """Flushes one file, one flush at a time; readable when a flush has ended."""

    def __init__(self, file: int) -> None:
        """Begin to use a file; OSError where Linux, or what a container lets through of it, has no such calls."""
        numbers = _CALLS.get(platform.machine())
        if sys.platform != "linux" or numbers is None:
            raise OSError("no asynchronous flush on this platform")
        setup, self._destroy, self._submit, self._getevents = (ctypes.c_long(number) for number in numbers)
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        if self._syscall(setup, ctypes.c_long(1), ctypes.byref(self._context)) < 0:
            raise _last_error()
        self._told_by = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        request = _Request(opcode=_FDATASYNC, file=file, flags=_TELL_BY_DESCRIPTOR, told_by=self._told_by)
        self._requests = (ctypes.POINTER(_Request) * 1)(ctypes.pointer(request))
        self._event = _Event()

    def fileno(self) -> int:
        """Readable once what was begun has ended."""
        return self._told_by

    def begin(self) -> None:
        """Begin a flush; OSError when Linux refuses to."""
        if self._syscall(self._submit, self._context, ctypes.c_long(1), self._requests) != 1:
            raise _last_error()

    def end(self) -> bool:
        """Take note of the end of a flush; False when none has ended, OSError when it failed."""
        try:
            os.eventfd_read(self._told_by)
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
        """Give everything back; waits for a flush under way."""
        self._syscall(self._destroy, self._context)
        os.close(self._told_by)


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
