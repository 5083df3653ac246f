"""How messages that were not delivered go back to their queue, so that none overtakes an earlier one of its group."""

import logging
from collections.abc import Callable

from penstock.domain.outcome import MediationOutcome, error_text
from penstock.domain.pointer import DispatchMode
from penstock.edge.clock import Clock
from penstock.router.intake.tracker import TrackedMessage
from penstock.router.pools.lanes import PoolLane, PoolLanes

_log = logging.getLogger(__name__)


class MessageReturns:
    """Returns messages of a pool to their queues."""

    def __init__(self, pool: str, lanes: PoolLanes, clock: Clock, now_s: Callable[[], float]) -> None:
        self._pool = pool
        self._lanes = lanes
        self._clock = clock
        self._now_s = now_s

    def give_back(self, message: TrackedMessage, delay_s: int) -> None:
        """Return a message; in mode BLOCK_ON_ERROR its batch may not overtake it."""
        self._block_batch(message, delay_s)
        message.origin.settlements.nack(message, delay_s)

    def fail(self, lane: PoolLane, message: TrackedMessage, outcome: MediationOutcome) -> None:
        """Return the message of a failed delivery, with those that must not overtake it."""
        self._log(message, outcome)
        self.give_back(message, outcome.effective_delay_s)
        self.cascade(lane, message)

    def drop(self, lane: PoolLane, message: TrackedMessage) -> None:
        """Drop a message without a settlement: its queue redelivers it, maybe to another router.

        Later messages of its group must not overtake it.
        """
        _log.info("pool %s: the lease of message %s has ended; it is dropped", self._pool, message.pointer.id)
        self._block_batch(message, 0)
        message.origin.settlements.abandon(message)
        self.cascade(lane, message)

    def cascade(self, lane: PoolLane, failed: TrackedMessage) -> None:
        """Return the messages that must not overtake a failed one."""
        now_ms, now_s = self._clock.now_ms(), self._now_s()
        for message in self._lanes.take_blocked(lane, failed):
            message.batch_group.fail_with(failed.batch_group)
            _log.warning(
                "message %s returns to its queue, to keep order: batch and group %s has failed",
                message.pointer.id,
                failed.batch_group,
                extra=self._place(message),
            )
            if message.leased_until_s <= now_s:
                message.origin.settlements.abandon(message)
                continue
            delay_s = message.batch_group.delay_s(now_ms, ordered=message.received.ordered)
            message.origin.settlements.nack(message, delay_s)

    def _block_batch(self, message: TrackedMessage, delay_s: int) -> None:
        if message.pointer.dispatch_mode is DispatchMode.BLOCK_ON_ERROR:
            message.batch_group.fail(delay_s, self._clock.now_ms())

    def _log(self, message: TrackedMessage, outcome: MediationOutcome) -> None:
        reason, delay_s = error_text(outcome.error) or "it failed", outcome.effective_delay_s
        extra = self._place(message)
        _log.info("message %s returns to its queue for %d s: %s", message.pointer.id, delay_s, reason, extra=extra)
        batch = message.batch_group
        if message.pointer.dispatch_mode is DispatchMode.BLOCK_ON_ERROR and not batch.has_failed:
            _log.warning("batch and group %s has failed: its later messages return to their queue", batch, extra=extra)

    def _place(self, message: TrackedMessage) -> dict[str, str]:
        return {"pool": self._pool, "queue": message.origin.name, "group": message.group}
