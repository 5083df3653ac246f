"""Flushes a store's file from the loop, which goes on meanwhile.

How long a commit on the loop waits for more callers to share it.
"""

import asyncio
import logging
from concurrent.futures import Executor

from penstock.engine.store.flush import FileFlush, KernelFlush

log = logging.getLogger(__name__)


class Flushing:
    """By the kernel where it can, else by a thread."""

    def __init__(self, file: FileFlush, thread: Executor) -> None:
        self._file = file
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] | None = None
        self._kernel: KernelFlush | None = None
        try:
            self._kernel = KernelFlush(file.fileno())
        except OSError as error:
            log.debug("flushes are done by a thread: %s", error)
        else:
            self._loop.add_reader(self._kernel.fileno(), self._end)

    async def flush(self) -> None:
        """Return when everything written before is on the disk; StoreFailed when it is not."""
        if self._kernel is None:
            await self._loop.run_in_executor(self._thread, self._file.wait)
            return
        self._ended = self._loop.create_future()
        try:
            self._kernel.begin()
            await self._ended
        except OSError as error:
            raise self._file.failed(error) from error

    def close(self) -> None:
        """Give the kernel's part back, when nothing is being flushed."""
        if self._kernel is not None:
            self._loop.remove_reader(self._kernel.fileno())
            self._kernel.close()

    def _end(self) -> None:
        assert self._kernel is not None
        assert self._ended is not None
        failure: OSError | None = None
        try:
            if not self._kernel.end():
                return
        except OSError as error:
            failure = error
        if self._ended.done():
            return  # whoever waited was cancelled
        if failure is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(failure)


# An empty round of the loop takes about 5 µs: together a sixth of what a commit costs.
_QUIET_ROUNDS = 20
_ENOUGH_CALLERS = 256


class Gathering:
    """Watches the callers of the next commit, round by round of the loop.

    A commit costs about the same for one caller as for many, and callers who were answered together come back one
    after another. So while some come in every few rounds the commit waits for the next; one who had the last commit
    to himself is not kept waiting.
    """

    __slots__ = ("_alone", "_quiet", "_seen")

    def __init__(self) -> None:
        self._alone = True
        self._seen = 0
        self._quiet = 0

    def is_complete(self, callers: int) -> bool:
        """Asked once in a round, with the callers that wait by now; True ends this gathering and begins the next."""
        self._quiet = 0 if callers > self._seen else self._quiet + 1
        self._seen = callers
        if self._alone or self._quiet >= _QUIET_ROUNDS or callers >= _ENOUGH_CALLERS:
            self._alone = callers <= 1
            self._seen = self._quiet = 0
            return True
        return False
