"""A thread for one connection to an embedded queue, so that the event loop never waits for a disk or a lock."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.queues.embedded.table import EmbeddedTable
from penstock.queues.errors import BrokerUnavailable, SourceClosed
from penstock.queues.uri import EmbeddedUri

A = TypeVar("A")


class EmbeddedWorker:
    """Runs operations on a table in a thread, one after the other."""

    def __init__(self, uri: EmbeddedUri) -> None:
        self._uri = uri
        self._thread: ThreadPoolExecutor | None = None
        self._table: EmbeddedTable | None = None

    async def open(self) -> None:
        """Connect; raise BrokerUnavailable if the file cannot be used."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-embedded-queue")
        try:
            await asyncio.wrap_future(thread.submit(self._connect))
        except BaseException as error:
            # A cancelled connect may still be running: close its connection afterwards.
            thread.submit(self._disconnect)
            thread.shutdown(wait=False)
            if isinstance(error, sqlite3.Error):
                raise self._unavailable(error) from error
            raise
        self._thread = thread

    def run(self, operation: Callable[[EmbeddedTable], A]) -> "asyncio.Future[A]":
        """Run an operation on the table, to its end even if the caller is cancelled."""
        if self._thread is None or self._table is None:
            raise SourceClosed(self._uri.queue)
        return asyncio.wrap_future(self._thread.submit(self._run, self._table, operation))

    async def close(self) -> None:
        """Finish pending operations, and close the file."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.wrap_future(thread.submit(self._disconnect))
            thread.shutdown()

    def _connect(self) -> None:
        self._table = EmbeddedTable(self._uri.path, self._uri.queue)

    def _disconnect(self) -> None:
        table, self._table = self._table, None
        if table is not None:
            table.close()

    def _run(self, table: EmbeddedTable, operation: Callable[[EmbeddedTable], A]) -> A:
        try:
            return operation(table)
        except sqlite3.Error as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: sqlite3.Error) -> BrokerUnavailable:
        return BrokerUnavailable(f"cannot use the queue file {self._uri.path}: {error}; check it and its directory")
