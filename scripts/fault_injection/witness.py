"""An endpoint that notes every delivery, and the verdict on what it saw."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from random import Random
from typing import NamedTuple, Self

_HEAD_END = b"\r\n\r\n"
_ANSWER = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n"


class Visit(NamedTuple):
    """A request for an event: when it began and ended, counted in one order, and whether it was answered with 200."""

    subscriber: str
    key: str
    number: int
    began: int
    ended: int
    succeeded: bool


class Verdict(NamedTuple):
    """How many events were accepted and how many deliveries broke a promise."""

    events: int
    deliveries: int
    lost: int
    doubled: int
    """Deliveries of what had been answered with 200 before: at least once allows them."""
    reordered: int
    overlapping: int

    @property
    def is_clean(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.reordered or self.overlapping)


def judged(accepted: Mapping[str, int], subscribers: Iterable[str], visits: Iterable[Visit]) -> Verdict:
    """Compare what was seen with what was accepted: for each key, the numbers from 0 up to the given one."""
    lanes: dict[tuple[str, str], list[Visit]] = defaultdict(list)
    for visit in visits:
        lanes[visit.subscriber, visit.key].append(visit)
    lost = doubled = reordered = overlapping = 0
    for subscriber in subscribers:
        for key, count in accepted.items():
            lane = sorted(lanes[subscriber, key], key=lambda visit: visit.began)
            done = [visit.number for visit in lane if visit.succeeded]
            lost += len(set(range(count)) - set(done))
            doubled += len(done) - len(set(done))
            reordered += sum(later.number not in (one.number, one.number + 1) for one, later in pairwise(lane))
            overlapping += sum(later.began < one.ended for one, later in pairwise(lane))
    return Verdict(sum(accepted.values()), sum(map(len, lanes.values())), lost, doubled, reordered, overlapping)


class Witness:
    """An HTTP server whose paths are subscribers; those that are named flaky fail at times."""

    def __init__(self, rng: Random) -> None:
        self.visits: list[Visit] = []
        self.url = ""
        self._rng = rng
        self._step = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._request(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(_HEAD_END)).decode().lower()
        subscriber = head.split()[1].strip("/")
        length = next(int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:"))
        event = json.loads(await reader.readexactly(length))
        began = self._next_step()
        status = 500 if "flaky" in subscriber and self._rng.random() < 0.1 else 200
        is_open = await self._work(reader)
        ended = self._next_step()
        if is_open:
            writer.write(_ANSWER % status)
            await writer.drain()
        succeeded = is_open and status == 200
        self.visits.append(Visit(subscriber, event["partitionkey"], event["data"], began, ended, succeeded))
        return is_open

    async def _work(self, reader: asyncio.StreamReader) -> bool:
        """Take a while; return whether the sender is still there."""
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({gone}, timeout=self._rng.random() * 0.05)
        if gone.done():
            return False
        gone.cancel()
        await asyncio.wait({gone})
        return True

    def _next_step(self) -> int:
        self._step += 1
        return self._step
