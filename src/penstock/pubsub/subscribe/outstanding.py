"""Flow control of one stream: its unsettled messages, against the limits its client asked for."""

import asyncio

import msgspec

from penstock.domain.limits import MIB
from penstock.edge.clock import Clock
from penstock.engine import LEASED, Entry

# The limit for clients that ask for none, so that no client can make the server hold any amount.
MOST_MESSAGES = 10_000
MOST_BYTES = 100 * MIB


class FlowLimits(msgspec.Struct, frozen=True):
    """How much a stream may have outstanding."""

    messages: int = MOST_MESSAGES
    size_bytes: int = MOST_BYTES

    @classmethod
    def asked_for(cls, messages: int, size_bytes: int) -> "FlowLimits":
        """Return the limits a client asked for; 0 or less means no limit."""
        return cls(
            min(messages, MOST_MESSAGES) if messages > 0 else MOST_MESSAGES,
            min(size_bytes, MOST_BYTES) if size_bytes > 0 else MOST_BYTES,
        )


class _Sent(msgspec.Struct, frozen=True, gc=False):
    entry: Entry
    lease_id: int

    @property
    def live(self) -> bool:
        """Whether the client still has it."""
        return self.entry.state is LEASED and self.entry.lease_id == self.lease_id


class StreamIndex(dict[str, "Outstanding"]):
    """Which stream holds a delivery, by ack id, because acks also come by other calls."""

    def free(self, ack_id: str) -> None:
        """Remove a delivery that was settled or given back."""
        stream = self.pop(ack_id, None)
        if stream is not None:
            stream.freed(ack_id)


class Outstanding:
    """The unsettled messages of one stream; expired leases are removed when it runs out of capacity."""

    def __init__(self, limits: FlowLimits, streams: StreamIndex, clock: Clock) -> None:
        self.limits = limits
        self.size_bytes = 0
        self._streams = streams
        self._clock = clock
        self._sent: dict[str, _Sent] = {}
        self._waiting: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def free_messages(self) -> int:
        """How many more messages may be sent."""
        return self.limits.messages - len(self._sent)

    @property
    def free_bytes(self) -> int:
        """How many more bytes may be sent."""
        return self.limits.size_bytes - self.size_bytes

    @property
    def has_capacity(self) -> bool:
        """Whether one more message may be sent."""
        return self.free_messages > 0 and self.free_bytes > 0

    def add(self, ack_id: str, entry: Entry) -> None:
        """Add a message that is sent to the client."""
        self._sent[ack_id] = _Sent(entry, entry.lease_id)
        self.size_bytes += entry.message.size_bytes
        self._streams[ack_id] = self

    def freed(self, ack_id: str) -> None:
        """Remove a message that was settled or given back."""
        self._forget(ack_id)
        if self.has_capacity:
            self.wake()

    async def wait_for_capacity(self) -> None:
        """Return when one more message may be sent, or when woken."""
        if self.has_capacity or self._prune():
            return
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        timer = loop.call_later(self._until_next_deadline_s(), self.wake)
        try:
            await self._waiting
        finally:
            timer.cancel()
            self._waiting = None

    def wake(self) -> None:
        """Wake the task that waits for capacity."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def close(self) -> None:
        """Forget all messages of a closed stream; their leases continue."""
        for ack_id in self._sent:
            self._streams.pop(ack_id, None)
        self._sent.clear()

    def _forget(self, ack_id: str) -> None:
        sent = self._sent.pop(ack_id, None)
        if sent is not None:
            self.size_bytes -= sent.entry.message.size_bytes

    def _prune(self) -> bool:
        for ack_id in [ack_id for ack_id, sent in self._sent.items() if not sent.live]:
            self._streams.pop(ack_id, None)
            self._forget(ack_id)
        return self.has_capacity

    def _until_next_deadline_s(self) -> float:
        next_ms = min(sent.entry.deadline_ms for sent in self._sent.values())
        return max(0.001, (next_ms - self._clock.now_ms()) / 1000)
