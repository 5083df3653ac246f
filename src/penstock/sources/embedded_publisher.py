"""The publisher's end of an embedded queue: publications of one moment share a commit."""

from collections.abc import Sequence
from itertools import chain

from penstock.domain.errors import Unavailable
from penstock.edge.clock import Clock, SystemClock
from penstock.sources.embedded_bell import ring
from penstock.sources.embedded_worker import EmbeddedWorker
from penstock.sources.gather import Gatherer
from penstock.sources.port import Publication
from penstock.sources.uri import EmbeddedUri

_CALLS_A_COMMIT = 100


class EmbeddedPublisher:
    """Puts messages into the table of a file; either all of a call are in, or none."""

    def __init__(self, uri: EmbeddedUri, *, clock: Clock | None = None) -> None:
        self._uri = uri
        self._clock = clock or SystemClock()
        self._worker = EmbeddedWorker(uri)
        self._calls: Gatherer[Sequence[Publication]] = Gatherer(self._commit, most=_CALLS_A_COMMIT, at_once=1)

    async def open(self) -> None:
        """Open the file, and make it if it is not there."""
        await self._worker.open()

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        """Put messages in, in order; per message None, or why it is not in."""
        try:
            await self._calls.add(publications)
        except Unavailable as error:
            return [error] * len(publications)
        return [None] * len(publications)

    async def close(self) -> None:
        """Finish what was given, and let go of the file."""
        await self._calls.drain()
        await self._worker.close()

    async def _commit(self, calls: Sequence[Sequence[Publication]]) -> Sequence[None]:
        now_ms = self._clock.now_ms()
        publications = list(chain.from_iterable(calls))
        await self._worker.ask(lambda table: table.publish(publications, now_ms))
        ring(self._uri)
        return [None] * len(calls)
