"""A consumer that takes some messages, says which, and settles none; to be killed."""

import asyncio
import sys

from penstock.queues.open import QueueSpec, source_for


async def main(uri: str, visibility_s: int, count: int) -> None:
    """Print `broker_id` of this many messages, one a line, then wait."""
    source = source_for(QueueSpec("child", uri, visibility_timeout=visibility_s))
    await source.open()
    taken = 0
    while taken < count:
        for message in await source.receive():
            print(message.broker_id, flush=True)
            taken += 1
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
