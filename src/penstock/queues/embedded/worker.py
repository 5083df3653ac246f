"""A thread of its own for one connection to the embedded queue: the event loop never waits for a disk or a lock."""

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
    """Carries out what is asked of one table, one after the other."""

    def __init__(self, uri: EmbeddedUri) -> None:
        self._uri = uri
        self._thread: ThreadPoolExecutor | None = None
        self._table: EmbeddedTable | None = None

    async def open(self) -> None:
        """Connect; BrokerUnavailable if the file cannot be used."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-embedded-queue")
        try:
            await asyncio.wrap_future(thread.submit(self._connect))
        except BaseException as error:
            # Whoever was cancelled may leave a connection behind that is only now being made.
            thread.submit(self._disconnect)
            thread.shutdown(wait=False)
            if isinstance(error, sqlite3.Error):
                raise self._unavailable(error) from error
            raise
        self._thread = thread

    def ask(self, question: Callable[[EmbeddedTable], A]) -> "asyncio.Future[A]":
        """Have something done with the table; it is done even if nobody waits for it any more."""
        if self._thread is None or self._table is None:
            raise SourceClosed(self._uri.queue)
        return asyncio.wrap_future(self._thread.submit(self._answer, self._table, question))

    async def close(self) -> None:
        """Finish what was asked, and let go of the file."""
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

    def _answer(self, table: EmbeddedTable, question: Callable[[EmbeddedTable], A]) -> A:
        try:
            return question(table)
        except sqlite3.Error as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: sqlite3.Error) -> BrokerUnavailable:
        return BrokerUnavailable(f"the queue file {self._uri.path} cannot be used: {error}; check it and its directory")
