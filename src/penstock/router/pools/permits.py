"""The permits of a pool: how many of its deliveries run at once, and how many more are made ready meanwhile.

A turn of a lane has three stages. It prepares (a job is read and marked in the database), it holds a permit (the
request is under way), and it concludes (the result is stored). Only the request counts against the pool's concurrency.
Otherwise every delivery would also wait for the commits of its neighbours, and each commit would hold few of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from penstock.domain.outcome import MediationOutcome

# A pool makes ready what it delivers in this time.
AHEAD_S = 0.1
MOST_AHEAD = 500


class TurnStage(IntEnum):
    """What a turn does at present."""

    PREPARING = 0
    DELIVERING = 1
    CONCLUDING = 2


class MessageLeaseEnded(Exception):
    """The message of a turn belongs to its queue again: it must not be delivered here."""


class Leased(Protocol):
    """A message that its queue has given to this router for a time."""

    leased_until_s: float

    @property
    def group(self) -> str:
        """The group of the message."""
        ...


class Permit:
    """The permit of one turn: its mediator takes it before the request and gives it back after."""

    __slots__ = ("_permits", "message", "stage")

    def __init__(self, permits: "Permits", stage: TurnStage) -> None:
        self._permits = permits
        self.stage = stage
        self.message: Leased | None = None

    async def take(self) -> None:
        """Wait until one of the pool's permits is free, and take it; MessageLeaseEnded if that took too long."""
        if not self._permits.try_take():
            await self._permits.wait()
        self.stage = TurnStage.DELIVERING
        if self.message is not None and self.message.leased_until_s <= self._permits.now_s():
            raise MessageLeaseEnded

    def give_back(self, answer: MediationOutcome | None = None) -> None:
        """Let another delivery have the permit; the lane's turn goes on until the result is stored.

        `answer` is that of the endpoint that all messages of the subscription are for.
        """
        if answer is not None and self.message is not None:
            self._permits.answered(self.message.group, answer)
        if self.stage is TurnStage.DELIVERING:
            self.stage = TurnStage.CONCLUDING
            self._permits.give_back()


class Permits:
    """Permits for deliveries, given out in the order in which they were asked for; `on_free` uses a free one."""

    def __init__(
        self,
        limit: int,
        now_s: Callable[[], float],
        on_free: Callable[[], None],
        answered: Callable[[str, MediationOutcome], None],
    ) -> None:
        # Less than the pool's concurrency while a decrease waits for deliveries to end.
        self.limit = limit
        # Turns that hold a permit, and turns that will want one.
        self.taken = 0
        self.preparing = 0
        self.now_s = now_s
        self._on_free = on_free
        self.answered = answered
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._window_s = now_s()
        self._ended = 0
        self._pace = 0

    @property
    def is_free(self) -> bool:
        """Whether a turn that starts has a permit for its delivery."""
        return self.taken + self.preparing < self.limit

    @property
    def may_prepare(self) -> bool:
        """Whether one more turn is worth preparing: it has a permit, or will soon have one at the present pace."""
        others = self.taken + self.preparing - self.limit
        return others < 0 or (others < self._pace and self.now_s() - self._window_s < 2 * AHEAD_S)

    def start(self) -> Permit:
        """Return the permit of a turn that delivers at once; there must be a free one."""
        self.taken += 1
        return Permit(self, TurnStage.DELIVERING)

    def prepare(self) -> Permit:
        """Return the permit of a turn that has something to prepare first."""
        self.preparing += 1
        return Permit(self, TurnStage.PREPARING)

    def end(self, permit: Permit) -> None:
        """End a turn at whatever stage it is."""
        if permit.stage is TurnStage.PREPARING:
            self.preparing -= 1
            permit.stage = TurnStage.CONCLUDING
        elif permit.stage is TurnStage.DELIVERING:
            self.taken -= 1
            permit.stage = TurnStage.CONCLUDING
            self.hand_out()

    def try_take(self) -> bool:
        """Take a permit for a prepared turn if one is free and no other waits for it."""
        if self._waiting or self.taken >= self.limit:
            return False
        self._take()
        return True

    async def wait(self) -> None:
        """Wait for a permit, and take it."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                # It was taken, and is still counted as preparing by its turn.
                self.taken -= 1
                self.preparing += 1
                self.hand_out()
            raise

    def give_back(self) -> None:
        """Give back a permit before the turn ends."""
        self.taken -= 1
        self._measure()
        self.hand_out()
        self._on_free()

    def hand_out(self) -> None:
        """Give the free permits to those who have waited longest."""
        while self._waiting and self.taken < self.limit:
            waiting = self._waiting.popleft()
            if not waiting.done():
                self._take()
                waiting.set_result(None)

    def _take(self) -> None:
        self.preparing -= 1
        self.taken += 1

    def _measure(self) -> None:
        now_s = self.now_s()
        elapsed_s = now_s - self._window_s
        if elapsed_s >= AHEAD_S:
            self._pace = min(int(self._ended * AHEAD_S / elapsed_s), MOST_AHEAD)
            self._window_s, self._ended = now_s, 0
        self._ended += 1
