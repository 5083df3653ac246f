"""Sends and receives until it is killed, and says what it was answered: `python queue_child.py DIRECTORY RUN`.

Each line is written before or after the call it tells of: `want` and `sent` around a send, `delete` and `deleted`
around an acknowledgement.
"""

import asyncio
import os
import sys
from pathlib import Path

from penstock.domain.ids import TsidFactory
from penstock.domain.message import Message
from penstock.edge.clock import SystemClock
from penstock.engine.async_shell import AsyncShell
from penstock.engine.ledger import Ledger
from penstock.engine.queue.policy import Grouping, QueuePolicy, Window
from penstock.engine.store.sqlite import SqliteStore
from penstock.engine.stored_queue import StoredQueue
from penstock.engine.stream import Stream

POLICY = QueuePolicy(grouping=Grouping.ONE)
WINDOW = Window(messages=40, size_bytes=100_000, lookahead=200)
SENDERS, RECEIVERS = 6, 3


def say(word: str, *names: str) -> None:
    os.write(1, "".join(f"{word} {name}\n" for name in names).encode())


async def send_for_ever(shell: AsyncShell, stream: Stream, clock: SystemClock, run: str, group: str) -> None:
    number = 0
    while True:
        names = [f"{run}:{group}:{number + index}" for index in range(1 + number % 3)]
        number += len(names)
        say("want", *names)
        now_ms = clock.now_ms()
        messages = [Message(name, b"x" * 200, now_ms, 200, group) for name in names]
        await shell.commit(shell.ledger.send(stream, messages, now_ms))
        say("sent", *names)


async def receive_for_ever(shell: AsyncShell, queue: StoredQueue, clock: SystemClock) -> None:
    while True:
        entries = await shell.receive(queue, 4, wait_s=1)
        # One in four comes back instead, so that there is something to find in the middle of segments.
        for entry in [entry for entry in entries if entry.receive_count == 1 and not entry.seq % 4]:
            shell.ledger.release(queue, entry.lease_id, clock.now_ms())
            entries.remove(entry)
        names = [entry.message.id for entry in entries]
        say("delete", *names)
        await shell.commit(shell.ledger.ack(queue, [entry.lease_id for entry in entries], clock.now_ms()))
        say("deleted", *names)


async def main(directory: Path, run: str) -> None:
    clock = SystemClock()
    ledger = Ledger(SqliteStore(directory / "queue.db", durability="fsync"), TsidFactory(1), WINDOW)
    ledger.catalog.open(clock.now_ms(), lambda _: POLICY)
    shell = AsyncShell(ledger, clock)
    if not ledger.catalog.streams:
        await shell.commit(ledger.catalog.create_stream_with_queue("q", POLICY, clock.now_ms()))
    stream, queue = ledger.catalog.stream("q"), ledger.catalog.queue("q")
    async with asyncio.TaskGroup() as group:
        for number in range(SENDERS):
            group.create_task(send_for_ever(shell, stream, clock, run, f"g{number}" if number else ""))
        for _ in range(RECEIVERS):
            group.create_task(receive_for_ever(shell, queue, clock))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
