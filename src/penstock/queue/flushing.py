"""Flushes a store's file from the loop, which goes on meanwhile."""

import asyncio
import logging
from concurrent.futures import Executor

from penstock.queue.store.file_flush import FileFlush
from penstock.queue.store.kernel_flush import KernelFlush

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
