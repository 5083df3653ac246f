"""A process that publishes into an embedded queue, or consumes it: `<uri> publish:<prefix>|consume:<name> G N`.

A publisher sends N messages to each of G groups `<prefix><i>` and says the body of each that is in. A consumer says
when it took each message, its group and number, until it is ended.
"""

import asyncio
import sys
import time

from penstock.queues.open import QueueSpec, publisher_for, source_for
from penstock.queues.port import Publication


async def publish(uri: str, prefix: str, groups: int, per_group: int) -> None:
    """Put messages in, a round of all groups at a time."""
    publisher = publisher_for(uri)
    await publisher.open()
    for number in range(per_group):
        names = [f"{prefix}{group}" for group in range(groups)]
        sent = [Publication(f"{name} {number}".encode(), name, f"{name} {number}") for name in names]
        assert not any(await publisher.publish(sent))
        for publication in sent:
            print(publication.body.decode(), flush=True)
    await publisher.close()


async def consume(uri: str) -> None:
    """Take and ack, until the process is ended."""
    source = source_for(QueueSpec("child", uri))
    await source.open()
    while True:
        messages = await source.receive()
        for message in messages:
            print(time.monotonic_ns(), message.body.decode(), flush=True)
        await asyncio.gather(*map(source.ack, messages))


if __name__ == "__main__":
    role, _, prefix = sys.argv[2].partition(":")
    if role == "publish":
        asyncio.run(publish(sys.argv[1], prefix, int(sys.argv[3]), int(sys.argv[4])))
    else:
        asyncio.run(consume(sys.argv[1]))
