"""Flushes of a store's file: by the kernel, by a thread, and what follows from one that fails."""

import asyncio
import errno
import os
import platform
import select
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.domain.ids import TsidFactory
from penstock.domain.message import Message
from penstock.engine.async_shell import AsyncShell
from penstock.engine.errors import StoreFailed
from penstock.engine.group_commit import AsyncFlush
from penstock.engine.ledger import Ledger
from penstock.engine.queue.policy import QueuePolicy
from penstock.engine.store.flush import FileFlush, KernelFlush
from penstock.engine.store.sqlite import SqliteStore
from penstock.testing.clock import VirtualClock

LONG_S = 30
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux flushes by itself")


class Unflushable(FileFlush):
    """A pipe in the place of the file, which no system can flush."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._reading, self._writing = os.pipe()

    def fileno(self) -> int:
        return self._writing


@pytest.fixture
def file(tmp_path: Path) -> FileFlush:
    path = tmp_path / "log"
    path.write_bytes(b"something")
    return FileFlush(path)


@on_linux
def test_the_kernel_flushes_and_tells_again_and_again(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb", buffering=0) as log:
        flush = KernelFlush(log.fileno())
        for number in range(100):
            log.write(b"%d" % number)
            assert not select.select([flush], [], [], 0)[0], "nothing is under way"
            assert not flush.end()
            flush.begin()
            assert select.select([flush], [], [], LONG_S)[0]
            assert flush.end()
        flush.close()


@on_linux
def test_what_the_kernel_cannot_flush_is_an_error_with_its_number() -> None:
    reading, writing = os.pipe()
    flush = KernelFlush(writing)
    with pytest.raises(OSError, match="Invalid argument") as refusal:
        flush.begin()
    assert refusal.value.errno == errno.EINVAL
    flush.close()
    os.close(reading)
    os.close(writing)


def test_a_machine_whose_calls_are_not_known_is_told_apart(monkeypatch: pytest.MonkeyPatch, file: FileFlush) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    with pytest.raises(OSError, match="no asynchronous flush"):
        KernelFlush(file.fileno())


async def flushed(file: FileFlush, times: int) -> None:
    with ThreadPoolExecutor(1) as thread:
        flushing = AsyncFlush(file, thread)
        try:
            for _ in range(times):
                async with asyncio.timeout(LONG_S):
                    await flushing.flush()
        finally:
            flushing.close()


@pytest.mark.parametrize("by", ["kernel", "thread"])
def test_a_file_is_flushed_while_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch, file: FileFlush, by: str) -> None:
    waits: list[str] = []
    wait = file.wait

    def noted() -> None:
        waits.append(threading.current_thread().name)
        wait()

    monkeypatch.setattr(file, "wait", noted)
    if by == "thread":
        monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    asyncio.run(flushed(file, 3))
    if by == "thread" or sys.platform != "linux":
        assert len(waits) == 3
        assert threading.main_thread().name not in waits
    else:
        assert not waits


@on_linux
def test_after_a_flush_that_failed_the_file_is_good_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    file = Unflushable(path)
    file.check()
    with pytest.raises(StoreFailed, match=r"could not be flushed to its disk .* then restart"):
        asyncio.run(flushed(file, 1))
    with pytest.raises(StoreFailed, match="then restart"):
        file.check()


class BrokenDiskStore(SqliteStore):
    """A disk that breaks when told to."""

    def break_disk(self) -> None:
        """From the next flush on."""
        self.flush = Unflushable(self._path)


@on_linux
def test_callers_are_refused_when_a_flush_fails_and_nothing_is_taken_until_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = BrokenDiskStore(tmp_path / "queue.db")
        ledger = Ledger(store, TsidFactory(1))
        clock = VirtualClock()
        ledger.catalog.open(clock.now_ms(), lambda _: QueuePolicy())
        store.break_disk()
        shell = AsyncShell(ledger, clock)
        made = ledger.catalog.create_stream_with_queue("s", QueuePolicy(), 0)
        with pytest.raises(StoreFailed, match=r"could not be flushed"):
            await shell.commit(made)
        assert "s" not in ledger.catalog.streams
        with pytest.raises(StoreFailed, match="then restart"):
            await shell.commit(ledger.catalog.create_stream_with_queue("t", QueuePolicy(), 0))
        assert "then restart" in (shell.last_failure or "")
        await shell.close()

    asyncio.run(scenario())


def test_nobody_is_answered_before_the_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "queue.db")
        ledger = Ledger(store, TsidFactory(1))
        clock = VirtualClock()
        ledger.catalog.open(clock.now_ms(), lambda _: QueuePolicy())
        shell = AsyncShell(ledger, clock)
        await shell.commit(ledger.catalog.create_stream_with_queue("s", QueuePolicy(), 0))
        stream, queue = ledger.catalog.streams["s"], ledger.catalog.queues["s"]
        disk, asked = asyncio.Event(), asyncio.Event()
        flush = AsyncFlush.flush

        async def slow_flush(flushing: AsyncFlush) -> None:
            asked.set()
            await disk.wait()
            await flush(flushing)

        monkeypatch.setattr(AsyncFlush, "flush", slow_flush)
        send = ledger.send(stream, [Message("m", b"body", 0, 4)], 0)
        sending = asyncio.create_task(shell.commit(send))
        async with asyncio.timeout(LONG_S):
            await asked.wait()
        assert not send.done
        assert not ledger.receive(queue, 0, 10), "what is not durable is not handed out"
        disk.set()
        async with asyncio.timeout(LONG_S):
            await sending
        assert [entry.message.id for entry in ledger.receive(queue, 0, 10)] == ["m"]
        await shell.close()

    asyncio.run(scenario())
