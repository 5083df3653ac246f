"""An endpoint that is stuck for an hour: 20,000 messages wait behind it, and the SQS server does not grow."""

import asyncio
import gc
import sys
from pathlib import Path

import pytest

from penstock.domain.ids import TsidFactory
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.port import Store
from penstock.engine.store.sqlite import SqliteStore
from penstock.sqs.model import (
    ChangeMessageVisibilityBatchRequest,
    ChangeMessageVisibilityBatchRequestEntry,
    CreateQueueRequest,
    ReceiveMessageRequest,
    SendMessageBatchRequest,
    SendMessageBatchRequestEntry,
)
from penstock.sqs.server import SqsServerSettings, open_service
from penstock.testing.clock import VirtualClock
from tests.services.sqs_actions import act

URL = "/000000000000/stuck.fifo"
WAITING = 20_000
GROUPS = 500
VISIBILITY_S = 120
EXTENDED_EVERY_S = 20
HOUR_S = 3600
# A small object for one in ten extended leases would be more than this.
SLACK_BLOCKS = 2_000


class Router:
    """Holds 100 messages of a queue as a router does whose deliveries do not end, and tries one after another."""

    def __init__(self, store: Store) -> None:
        self._clock = VirtualClock()
        self._opening = open_service({"": store}, self._clock, TsidFactory(1), SqsServerSettings())
        self._handles: list[str] = []

    async def run(self) -> list[int]:
        """Let an hour pass; return the blocks that are allocated after each twelfth of it."""
        async with self._opening as self._service:
            await act(self._service, "CreateQueue", CreateQueueRequest("stuck.fifo", {"FifoQueue": "true"}))
            for first in range(0, WAITING, 10):
                await self._send(first)
            while len(self._handles) < 100:
                self._handles += await self._receive()
            blocks: list[int] = []
            for number in range(HOUR_S // EXTENDED_EVERY_S):
                await self._go_on()
                if number % 15 == 14:
                    gc.collect()
                    blocks.append(sys.getallocatedblocks())
            return blocks

    async def _go_on(self) -> None:
        self._clock.advance(EXTENDED_EVERY_S)
        for first in range(0, len(self._handles), 10):
            await self._change(self._handles[first : first + 10], VISIBILITY_S)
        # One delivery timed out: its message goes back, and comes again as the next one of its group.
        await self._change([self._handles.pop(0)], 0)
        self._handles += await self._receive(1)
        assert len(self._handles) == 100

    async def _change(self, handles: list[str], visibility_s: int) -> None:
        entries = [
            ChangeMessageVisibilityBatchRequestEntry(str(number), handle, visibility_s)
            for number, handle in enumerate(handles)
        ]
        request = ChangeMessageVisibilityBatchRequest(URL, entries)
        assert not (await act(self._service, "ChangeMessageVisibilityBatch", request)).failed

    async def _receive(self, most: int = 10) -> list[str]:
        request = ReceiveMessageRequest(URL, max_number_of_messages=most, visibility_timeout=VISIBILITY_S)
        return [message.receipt_handle for message in (await act(self._service, "ReceiveMessage", request)).messages]

    async def _send(self, first: int) -> None:
        entries = [
            SendMessageBatchRequestEntry(
                str(number), "x" * 100, message_group_id=f"g{number % GROUPS}", message_deduplication_id=f"m{number}"
            )
            for number in range(first, first + 10)
        ]
        assert not (await act(self._service, "SendMessageBatch", SendMessageBatchRequest(URL, entries))).failed


@pytest.mark.parametrize("kind", ["memory", pytest.param("sqlite", marks=pytest.mark.long)])
def test_an_hour_behind_a_stuck_endpoint_leaves_memory_as_it_was(kind: str, tmp_path: Path) -> None:
    store: Store = (
        MemoryStore()
        if kind == "memory"
        else SqliteStore(tmp_path / "sqs.db", durability="survives-process-crash-only")
    )

    blocks = asyncio.run(Router(store).run())

    assert len(blocks) == 12
    assert max(blocks[1:]) - blocks[1] < SLACK_BLOCKS, blocks
