"""A FIFO queue of 1 to 32 partitions, by the actions themselves, against a model of one line per group."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from itertools import takewhile
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.domain.ids import TsidFactory
from penstock.domain.message import partition_of
from penstock.engine.store.memory import MemoryStore
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.model import (
    ChangeMessageVisibilityRequest,
    CreateQueueRequest,
    DeleteMessageRequest,
    QueueUrlRequest,
    ReceivedMessage,
    ReceiveMessageRequest,
    SendMessageBatchRequest,
    SendMessageBatchRequestEntry,
)
from penstock.sqs.queue.receipts import decode_handle
from penstock.sqs.server import SqsServerSettings, open_service
from penstock.testing.clock import VirtualClock
from tests.rigs.search import examples
from tests.services.sqs_actions import act

T = TypeVar("T")
URL = "/000000000000/model.fifo"
GROUPS = [f"g{number}" for number in range(6)] + ["alpha", "beta"]
DEDUP_MS = 300_000
PURGE_MS = 60_000


class Held:
    """A message as the model knows it; `deadline_ms` is in the past unless someone has it."""

    def __init__(self, body: str, message_id: str, sequence: str) -> None:
        self.body = body
        self.message_id = message_id
        self.sequence = sequence
        self.deadline_ms = 0
        self.handle = ""
        self.receives = 0


class PartitionedQueue(RuleBasedStateMachine):
    """One queue; its groups are lists of messages in the order they were sent."""

    @initialize(partitions=st.sampled_from([1, 2, 4, 8, 16, 32]))
    def open(self, partitions: int) -> None:
        self.partitions = partitions
        self.clock = VirtualClock()
        self.runner = asyncio.Runner()
        self.open_things = AsyncExitStack()
        opening = open_service({"": MemoryStore()}, self.clock, TsidFactory(1), SqsServerSettings())
        self.service = self.runner.run(self.open_things.enter_async_context(opening))
        self.lines: dict[str, list[Held]] = {group: [] for group in GROUPS}
        self.known: dict[tuple[str, str], tuple[int, str]] = {}
        self.last_sequence: dict[str, str] = {}
        self.used_handles: list[tuple[str, Held]] = []
        self.deleted_by: set[str] = set()
        self.number = 0
        self.purged_ms: int | None = None
        attributes = {"FifoQueue": "true", "PartitionCount": str(partitions)}
        self.act("CreateQueue", CreateQueueRequest("model.fifo", attributes))

    def act(self, action: str, request: object) -> Any:
        return self.run(act(self.service, action, request))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def leased(self, held: Held) -> bool:
        return held.deadline_ms > self.now_ms

    def free(self) -> dict[str, list[Held]]:
        """What can be received: of each group the messages before the first that is in flight."""
        return {group: list(takewhile(lambda held: not self.leased(held), line)) for group, line in self.lines.items()}

    @rule(
        entries=st.lists(
            st.tuples(st.sampled_from(GROUPS), st.sampled_from(["", "", "", "x", "y"])), min_size=1, max_size=10
        )
    )
    def send(self, entries: list[tuple[str, str]]) -> None:
        request = []
        for index, (group, dedup_id) in enumerate(entries):
            self.number += 1
            name = dedup_id or f"unique-{self.number}"
            request.append(
                SendMessageBatchRequestEntry(
                    str(index), f"{group}:{self.number}", message_group_id=group, message_deduplication_id=name
                )
            )
        answer = self.act("SendMessageBatch", SendMessageBatchRequest(URL, request))
        assert not answer.failed
        results = {result.id: result for result in answer.successful}
        assert len(results) == len(entries)
        for entry in request:
            group = entry.message_group_id or ""
            # Partitions cannot share deduplication ids; one partition alone deduplicates for the whole queue.
            key = (group if self.partitions > 1 else "", entry.message_deduplication_id or "")
            expires_ms, original = self.known.get(key, (0, ""))
            result = results[entry.id]
            if expires_ms > self.now_ms:
                assert result.message_id == original
                continue
            assert len(result.sequence_number) == 20
            assert result.sequence_number > self.last_sequence.get(group, "")
            self.last_sequence[group] = result.sequence_number
            self.known[key] = (self.now_ms + DEDUP_MS, result.message_id)
            self.lines[group].append(Held(entry.message_body, result.message_id, result.sequence_number))

    @rule(most=st.integers(1, 10), visibility_s=st.sampled_from([0, 1, 30, 30, 600]))
    def receive(self, most: int, visibility_s: int) -> None:
        free = self.free()
        available = sum(len(line) for line in free.values())
        request = ReceiveMessageRequest(
            URL,
            max_number_of_messages=most,
            visibility_timeout=visibility_s,
            message_system_attribute_names=["All"],
        )
        messages: list[ReceivedMessage] = self.act("ReceiveMessage", request).messages
        assert len(messages) == min(most, available)
        taken: dict[str, list[ReceivedMessage]] = {}
        for message in messages:
            assert message.attributes is not None
            taken.setdefault(message.attributes["MessageGroupId"], []).append(message)
        for group, of_group in taken.items():
            assert group in free
            for held, message in zip(self.lines[group], of_group, strict=False):
                self.check(held, message, group)
                held.handle = message.receipt_handle
                held.deadline_ms = self.now_ms + visibility_s * 1000
                self.used_handles.append((held.handle, held))
            assert len(of_group) <= len(free[group])

    def check(self, held: Held, message: ReceivedMessage, group: str) -> None:
        assert (message.message_id, message.body) == (held.message_id, held.body)
        held.receives += 1
        assert message.attributes is not None
        assert message.attributes["ApproximateReceiveCount"] == str(held.receives)
        assert message.attributes["SequenceNumber"] == held.sequence
        assert decode_handle(message.receipt_handle).partition == partition_of(group, self.partitions)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if not self.used_handles:
            return
        handle, held = data.draw(st.sampled_from(self.used_handles))
        request = DeleteMessageRequest(URL, handle)
        if self.leased(held) and held.handle == handle:
            self.act("DeleteMessage", request)
            held.deadline_ms = 0
            (line,) = [line for line in self.lines.values() if held in line]
            line.remove(held)
            self.deleted_by.add(handle)
        elif handle in self.deleted_by:
            self.act("DeleteMessage", request)
        else:
            with pytest.raises(SqsError, match="expired") as caught:
                self.act("DeleteMessage", request)
            assert caught.value.kind is ErrorKind.INVALID_PARAMETER_VALUE

    @rule(data=st.data(), visibility_s=st.sampled_from([0, 1, 60]))
    def change_visibility(self, data: st.DataObject, visibility_s: int) -> None:
        if not self.used_handles:
            return
        handle, held = data.draw(st.sampled_from(self.used_handles))
        request = ChangeMessageVisibilityRequest(URL, handle, visibility_s)
        if self.leased(held) and held.handle == handle:
            self.act("ChangeMessageVisibility", request)
            held.deadline_ms = self.now_ms + visibility_s * 1000
        else:
            with pytest.raises(SqsError) as caught:
                self.act("ChangeMessageVisibility", request)
            assert caught.value.kind is ErrorKind.INVALID_PARAMETER_VALUE

    @rule(seconds=st.sampled_from([0.001, 1, 29.999, 30, 301]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(really=st.sampled_from([False, False, True]))
    def purge(self, really: bool) -> None:
        if not really:
            return
        if self.purged_ms is not None and self.now_ms - self.purged_ms < PURGE_MS:
            with pytest.raises(SqsError) as caught:
                self.act("PurgeQueue", QueueUrlRequest(URL))
            assert caught.value.kind is ErrorKind.PURGE_QUEUE_IN_PROGRESS
            return
        self.act("PurgeQueue", QueueUrlRequest(URL))
        self.purged_ms = self.now_ms
        self.known.clear()
        for line in self.lines.values():
            for held in line:
                held.deadline_ms = 0
            line.clear()

    @invariant()
    def the_partitions_hold_what_the_model_holds(self) -> None:
        if not hasattr(self, "service"):
            return
        totals = [0] * self.partitions
        for group, line in self.lines.items():
            totals[partition_of(group, self.partitions)] += len(line)
        assert [counters.total for counters in self.service.find("model.fifo").counters()] == totals

    def teardown(self) -> None:
        if not hasattr(self, "service"):
            return
        try:
            while any(self.lines.values()):
                self.clock.advance(700)
                self.receive(10, 600)
                for line in self.lines.values():
                    for held in [held for held in line if self.leased(held)]:
                        self.act("DeleteMessage", DeleteMessageRequest(URL, held.handle))
                        line.remove(held)
            self.the_partitions_hold_what_the_model_holds()
        finally:
            self.run(self.open_things.aclose())
            self.runner.close()


TestPartitionedQueue = PartitionedQueue.TestCase
TestPartitionedQueue.settings = settings(max_examples=examples(60), stateful_step_count=30)
