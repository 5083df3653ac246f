"""The handle of a receiver process: where it listens, and what it has recorded."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from penstock.tools.bench.bare_client import BareConnection
from penstock.tools.bench.end_to_end.record import StreamReport
from penstock.tools.bench.servers import port_of, server_process

_POLL_S = 0.05
_SHOW_EVERY_S = 5.0
# A stream that stands still for this long is not waited for.
PATIENCE_S = 60.0

A = TypeVar("A")


class Receiver:
    """A receiver process."""

    def __init__(self, url: str, connection: BareConnection) -> None:
        self.url = url
        self.port = port_of(url)
        self._connection = connection

    async def report(self, stream: str) -> StreamReport:
        """Return the counts of a stream."""
        return await self._ask(f"/report/{stream}", StreamReport)

    async def latencies_ms(self, stream: str) -> list[float]:
        """Return the latencies of a stream's events."""
        return await self._ask(f"/latencies/{stream}", list[float])

    async def _ask(self, path: str, kind: type[A]) -> A:
        request = f"GET {path} HTTP/1.1\r\nHost: receiver\r\n\r\n"
        return msgspec.json.decode(await self._connection.request(request.encode()), type=kind)

    async def wait(
        self,
        stream: str,
        count: int,
        show: Callable[[str], None],
        *,
        patience_s: float = PATIENCE_S,
        limit_s: float = float("inf"),
    ) -> StreamReport:
        """Wait for events of a stream, until all have arrived, none arrives any more, or the time is up."""
        began_s = moved_s = shown_s = time.monotonic()
        seen = 0
        while True:
            report, now_s = await self.report(stream), time.monotonic()
            if report.distinct >= count or now_s - began_s > limit_s:
                return report
            if report.distinct > seen:
                seen, moved_s = report.distinct, now_s
            elif now_s - moved_s > patience_s:
                return report
            if now_s - shown_s > _SHOW_EVERY_S:
                shown_s = now_s
                show(f"{seen:,} of {count:,} delivered")
            await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """Run a receiver process."""
    with server_process("-m", "penstock.tools.bench.end_to_end.receiver_process") as url:
        connection = await BareConnection.open(port_of(url))
        try:
            yield Receiver(url, connection)
        finally:
            connection.close()
