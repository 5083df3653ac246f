"""Keeping to a task's slots of the timetable."""

from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.pipeline.replay.timetable import Timetable


class Pace:
    """Tells when a task's next delivery may begin; without a timetable at once."""

    def __init__(self, timetable: Timetable | None, part: int, clock: Clock) -> None:
        self._slots = None if timetable is None else timetable.slots_of(part)
        self._clock = clock

    def wait_s(self) -> float:
        """Take the next slot; how long it is until then."""
        if self._slots is None:
            return 0.0
        now_ms = self._clock.now_ms()
        return (self._slots.take(now_ms) - now_ms) / SECOND_MS

    def due_ms(self) -> int | None:
        """The next slot, whenever it is; None if there is nothing to keep to."""
        return None if self._slots is None else self._slots.take(0)
