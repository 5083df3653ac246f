"""A simulated queue that outlives the router, with leases, delays and optional order per group."""

import asyncio
from itertools import count

import msgspec

from penstock.domain.limits import SECOND_MS
from penstock.domain.pointer import group_in_body
from penstock.edge.clock import Clock


class QueuedMessage(msgspec.Struct, eq=False):
    """A message in the queue; `handle` belongs to the newest lease."""

    broker_id: str
    body: bytes
    group: str | None
    """The group that the broker orders it by."""
    named_group: str | None
    """The group that the broker tells; a message may also name it in its body alone."""
    visible_ms: int = 0
    handle: str = ""
    receives: int = 0
    # The process that has the newest lease.
    owner: object = None


class SimulatedQueue:
    """The messages of a broker's queue."""

    def __init__(self, name: str, clock: Clock, visibility_s: float, *, ordered: bool) -> None:
        self.name = name
        self.visibility_s = visibility_s
        self.ordered = ordered
        self._clock = clock
        self._numbers = count(1)
        self._messages: list[QueuedMessage] = []
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def send(self, body: bytes, group: str | None) -> None:
        """Append a message; one without a group is ordered by that in its body (ROUTER-BROKER-4)."""
        by = group or group_in_body(body)
        self._messages.append(QueuedMessage(f"{self.name}-{next(self._numbers)}", body, by, group))
        self._wake()

    def lease(self, most: int, owner: object) -> list[QueuedMessage]:
        """Lease visible messages; in an ordered queue an invisible message blocks the later ones of its group."""
        now_ms = self._clock.now_ms()
        blocked: set[str | None] = set()
        found: list[QueuedMessage] = []
        for message in self._messages:
            if message.visible_ms > now_ms:
                if self.ordered and message.group is not None:
                    blocked.add(message.group)
            elif message.group not in blocked and len(found) < most:
                message.receives += 1
                message.handle = f"{message.broker_id}#{message.receives}"
                message.visible_ms = now_ms + round(self.visibility_s * SECOND_MS)
                message.owner = owner
                found.append(message)
        return found

    async def wait(self) -> None:
        """Wait until something may have become visible."""
        self._changed.clear()
        now_ms = self._clock.now_ms()
        coming = [message.visible_ms for message in self._messages if message.visible_ms > now_ms]
        try:
            async with asyncio.timeout(max(min(coming) - now_ms, 1) / SECOND_MS if coming else None):
                await self._changed.wait()
        except TimeoutError:
            pass

    def delete(self, broker_id: str, handle: str) -> bool:
        """Remove a message; return False if the handle is not the newest one, or the lease has ended."""
        message = self._leased(broker_id, handle)
        if message is None:
            return False
        self._messages.remove(message)
        self._wake()
        return True

    def change_visibility(self, broker_id: str, handle: str, delay_s: float) -> bool:
        """Change the end of a lease; return False as `delete` does."""
        message = self._leased(broker_id, handle)
        if message is None:
            return False
        message.visible_ms = self._clock.now_ms() + round(delay_s * SECOND_MS)
        self._wake()
        return True

    def is_leased(self, broker_id: str, owner: object) -> bool:
        """Return whether a process has the lease of a message."""
        now_ms = self._clock.now_ms()
        found = next((each for each in self._messages if each.broker_id == broker_id), None)
        return found is not None and found.owner is owner and found.visible_ms > now_ms

    def _leased(self, broker_id: str, handle: str) -> QueuedMessage | None:
        now_ms = self._clock.now_ms()
        for message in self._messages:
            if message.broker_id == broker_id:
                return message if message.handle == handle and message.visible_ms > now_ms else None
        return None

    def _wake(self) -> None:
        self._changed.set()
