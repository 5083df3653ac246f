"""Group commit on the event loop: flushing without blocking it, and waiting for callers to share a commit."""

import asyncio
import logging
from concurrent.futures import Executor

from penstock.engine.store.flush import FileFlush, KernelFlush

log = logging.getLogger(__name__)

# An empty iteration of the loop takes about 5 µs: all of them take a sixth of a commit.
_QUIET_ITERATIONS = 20
_ENOUGH_CALLERS = 256


class AsyncFlush:
    """Flushes a store's file in the background: by the kernel where possible, otherwise in a thread."""

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
        """Return when everything written before is on disk; raise StoreFailed if the flush fails."""
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
        """Release the kernel's resources; no flush may be in progress."""
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
            return  # the waiting task was cancelled
        if failure is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(failure)


class CommitDelay:
    """Decides when a commit starts, from the callers seen in each iteration of the loop.

    A commit costs about the same for one caller as for many, and callers that were answered together return one after
    another. So the commit waits as long as a caller arrives every few iterations; a caller that had the last commit to
    itself does not wait.
    """

    __slots__ = ("_alone", "_quiet", "_seen")

    def __init__(self) -> None:
        self._alone = True
        self._seen = 0
        self._quiet = 0

    def is_complete(self, callers: int) -> bool:
        """Return whether to commit now; called once per iteration with the number of waiting callers."""
        self._quiet = 0 if callers > self._seen else self._quiet + 1
        self._seen = callers
        if self._alone or self._quiet >= _QUIET_ITERATIONS or callers >= _ENOUGH_CALLERS:
            self._alone = callers <= 1
            self._seen = self._quiet = 0
            return True
        return False
