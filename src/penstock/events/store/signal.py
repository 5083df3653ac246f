"""The call that there may be jobs to claim.

Being called by PostgreSQL when any process has made jobs.
"""

import asyncio
from contextlib import suppress
from typing import Any

import psycopg

from penstock.edge.pause import pause


class JobSignal:
    """Set from any thread; waited for on the loop. Several calls before a wait are one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._called = asyncio.Event()

    def call(self) -> None:
        """There may be jobs."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._called.set)

    async def wait(self) -> None:
        """Return when somebody has called since the last wait."""
        await self._called.wait()
        self._called.clear()


_LISTEN = "LISTEN penstock_jobs"
_RECONNECT_PAUSE_S = 1.0
# Nothing is ever sent on this connection, so only these find out that the other side is gone.
_KEEPALIVE: dict[str, Any] = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}

Listening = psycopg.AsyncConnection[tuple[Any, ...]]


class PostgresListener:
    """One connection that only listens; lost, it is made anew."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._task: asyncio.Task[None] | None = None

    async def start(self, signal: JobSignal) -> None:
        """Listen from now on; returns when the first connection listens."""
        connection = await self._listening()
        self._task = asyncio.create_task(self._pass_on(connection, signal), name="jobs-listener")

    async def stop(self) -> None:
        """Listen no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _listening(self) -> Listening:
        connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True, **_KEEPALIVE)
        try:
            await connection.execute(_LISTEN)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _pass_on(self, connection: Listening, signal: JobSignal) -> None:
        while True:
            async with connection:
                with suppress(psycopg.Error):
                    async for _ in connection.notifies():
                        signal.call()
            connection = await self._reconnected()
            # What was told while nobody listened is lost, so there may be jobs.
            signal.call()

    async def _reconnected(self) -> Listening:
        while True:
            try:
                return await self._listening()
            except psycopg.Error:
                await pause(_RECONNECT_PAUSE_S)
