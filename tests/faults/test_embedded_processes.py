"""Several processes on one embedded queue: each message to one of them, groups in order, and none waits for long."""

import asyncio
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from queue import Queue
from threading import Thread

from penstock.queues.embedded.source import EmbeddedPublisher, EmbeddedSource
from penstock.queues.port import Publication
from penstock.queues.uri import EmbeddedUri

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "tests" / "sources" / "embedded_child.py"
PATIENCE_S = 60
GROUPS = 5
PER_GROUP = 30


async def test_processes_that_publish_and_consume_at_once_share_the_queue(tmp_path: Path) -> None:
    uri = EmbeddedUri(str(tmp_path / "shared.db"), "q")
    total = 2 * GROUPS * PER_GROUP
    publishers = [_child(uri, role, GROUPS, PER_GROUP) for role in ("publish:p", "publish:r")]
    consumers = [_child(uri, role, GROUPS, PER_GROUP) for role in ("consume:1", "consume:2")]
    handed_out: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    said: Queue[str] = Queue()
    readers = [Thread(target=_pass_on, args=(child, said)) for child in consumers]
    for reader in readers:
        reader.start()
    try:
        for _ in range(total):
            taken_ns, group, number = (await asyncio.to_thread(said.get, timeout=PATIENCE_S)).split()
            handed_out[group].append((int(taken_ns), int(number)))
    finally:
        for child in (*publishers, *consumers):
            child.kill()
            child.wait()
        for reader in readers:
            reader.join()
        for child in publishers:
            child.communicate()
    assert sum(map(len, handed_out.values())) == total
    for numbers in handed_out.values():
        assert [number for _, number in sorted(numbers)] == list(range(PER_GROUP))


async def test_a_message_of_another_process_wakes_a_waiting_consumer(tmp_path: Path) -> None:
    uri = EmbeddedUri(str(tmp_path / "shared.db"), "q")
    source = EmbeddedSource("q", uri, visibility_s=30)
    await source.open()
    receiving = asyncio.create_task(source.receive())
    child = _child(uri, "publish:p", 1, 1)
    async with asyncio.timeout(PATIENCE_S):
        (message,) = await receiving
        await source.ack(message)
    await source.close()
    assert child.communicate(timeout=PATIENCE_S)[0] == "p0 0\n"
    assert message.group == "p0"


async def test_what_another_process_left_undone_in_a_file_is_there_after_a_power_cut(tmp_path: Path) -> None:
    uri = EmbeddedUri(str(tmp_path / "shared.db"), "q")
    publisher = EmbeddedPublisher(uri)
    await publisher.open()
    assert await publisher.publish([Publication(b"before", "g", "before")]) == [None]
    await publisher.close()
    child = _child(uri, "publish:p", 50, 1000)
    assert child.stdout is not None
    confirmed = [await asyncio.to_thread(child.stdout.readline) for _ in range(5)]
    child.kill()
    child.communicate()

    source = EmbeddedSource("q", uri, visibility_s=30)
    await source.open()
    found: set[str] = set()
    async with asyncio.timeout(PATIENCE_S):
        while not {line.strip() for line in confirmed} <= found:
            for message in await source.receive():
                found.add(message.body.decode())
                source.ack(message)
    await source.close()
    assert "before" in found


def _child(uri: EmbeddedUri, role: str, groups: int, per_group: int) -> "subprocess.Popen[str]":
    command = [sys.executable, str(WORKER), uri.shown, role, str(groups), str(per_group)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _pass_on(child: "subprocess.Popen[str]", said: "Queue[str]") -> None:
    """Pass on what a child says, line by line, until it is ended."""
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            said.put(line)
