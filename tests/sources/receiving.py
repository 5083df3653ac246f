"""What tests of sources do over and over: take messages, in a bounded time."""

import asyncio
from collections.abc import Iterable

from penstock.queues.port import Publication, Received, Source

# Generous: nothing waits so long unless it is broken.
PATIENCE_S = 60.0


def publications(*bodies: str, group: str | None = "g") -> list[Publication]:
    """Messages of one group, each with a deduplication id of its own."""
    return [Publication(body.encode(), group, f"{group}:{body}") for body in bodies]


def numbered(count: int, *groups: str) -> list[Publication]:
    """Messages `<group>-<number>`, the groups taking turns."""
    return [
        Publication(f"{group}-{number}".encode(), group, f"{group}-{number}")
        for number in range(count)
        for group in groups
    ]


def bodies(messages: Iterable[Received]) -> list[str]:
    """What the messages say."""
    return [message.body.decode() for message in messages]


async def take(source: Source, count: int, *, ack: bool = False) -> list[Received]:
    """The next `count` messages; each acked when it comes if asked to. Fails if they do not come, or more."""
    taken: list[Received] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(taken) < count:
            some = await source.receive()
            taken += some
            if ack:
                await asyncio.gather(*map(source.ack, some))
    assert len(taken) == count, bodies(taken)
    return taken


async def take_until(source: Source, *last: str) -> list[str]:
    """Take and ack until all of these have come; what was said, in order."""
    said: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while not set(last) <= set(said):
            some = await source.receive()
            said += bodies(some)
            await asyncio.gather(*map(source.ack, some))
    return said
