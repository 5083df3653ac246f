"""Flow control of one stream: what it was sent and has not settled, against the limits its client asked for."""

import asyncio

import msgspec

from penstock.domain.limits import MIB
from penstock.edge.clock import Clock
from penstock.engine import LEASED, Entry

# A client that asks for no limit gets this one, so that nobody can make the server hold any amount.
MOST_MESSAGES = 10_000
MOST_BYTES = 100 * MIB


class FlowLimits(msgspec.Struct, frozen=True):
    """How much a stream may have outstanding."""

    messages: int = MOST_MESSAGES
    size_bytes: int = MOST_BYTES

    @classmethod
    def asked_for(cls, messages: int, size_bytes: int) -> "FlowLimits":
        """What a client asked for, where 0 and less mean without limit."""
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


class Holders(dict[str, "Outstanding"]):
    """Which stream has what outstanding, by ack id; acks come by other calls too."""

    def free(self, ack_id: str) -> None:
        """A delivery was settled or given back."""
        holder = self.pop(ack_id, None)
        if holder is not None:
            holder.freed(ack_id)


class Outstanding:
    """What one stream has outstanding; leases that ran out are found when there is no room otherwise."""

    def __init__(self, limits: FlowLimits, holders: Holders, clock: Clock) -> None:
        self.limits = limits
        self.size_bytes = 0
        self._holders = holders
        self._clock = clock
        self._sent: dict[str, _Sent] = {}
        self._waiting: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def room_messages(self) -> int:
        """How many more messages may be sent."""
        return self.limits.messages - len(self._sent)

    @property
    def room_bytes(self) -> int:
        """How many more bytes may be sent."""
        return self.limits.size_bytes - self.size_bytes

    @property
    def has_room(self) -> bool:
        """Whether one more message may be sent."""
        return self.room_messages > 0 and self.room_bytes > 0

    def add(self, ack_id: str, entry: Entry) -> None:
        """A message goes to the client."""
        self._sent[ack_id] = _Sent(entry, entry.lease_id)
        self.size_bytes += entry.message.size_bytes
        self._holders[ack_id] = self

    def freed(self, ack_id: str) -> None:
        """A message was settled or given back."""
        self._forget(ack_id)
        if self.has_room:
            self.wake()

    async def wait_for_room(self) -> None:
        """Return when one more message may be sent, or when woken."""
        if self.has_room or self._prune():
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
        """Let whoever waits for room look again."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def close(self) -> None:
        """The stream is gone; its leases run on."""
        for ack_id in self._sent:
            self._holders.pop(ack_id, None)
        self._sent.clear()

    def _forget(self, ack_id: str) -> None:
        sent = self._sent.pop(ack_id, None)
        if sent is not None:
            self.size_bytes -= sent.entry.message.size_bytes

    def _prune(self) -> bool:
        for ack_id in [ack_id for ack_id, sent in self._sent.items() if not sent.live]:
            self._holders.pop(ack_id, None)
            self._forget(ack_id)
        return self.has_room

    def _until_next_deadline_s(self) -> float:
        next_ms = min(sent.entry.deadline_ms for sent in self._sent.values())
        return max(0.001, (next_ms - self._clock.now_ms()) / 1000)
