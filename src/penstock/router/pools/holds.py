"""Subscriptions whose breaker is open: their messages wait in the pool until probes may be made (ROUTER-ISOLATE-6).

Else each of their messages would have its turn, be refused, be written down and be published again every few seconds:
a hundred dead endpoints with a backlog would take the time of all others.
"""

import asyncio
from collections.abc import Callable

from penstock.domain.outcome import CircuitOpen, MediationOutcome
from penstock.router.pools.lanes import PoolLanes, subscription_of


class SubscriptionHolds:
    """Limits the turns of subscriptions that are refused: none at first, then one at a time, until one succeeds."""

    def __init__(self, lanes: PoolLanes, ended: Callable[[], None]) -> None:
        self._lanes = lanes
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def answered(self, group: str, answer: MediationOutcome) -> None:
        """Note what a subscription's own endpoint answered to a message of a group, or that nothing was sent."""
        if isinstance(answer.error, CircuitOpen):
            self._hold(subscription_of(group), answer.error.retry_s)
        elif answer.error is None and self._lanes.has_limits:
            self._lanes.lift_limit(subscription_of(group))

    def processed(self, group: str, outcome: MediationOutcome) -> None:
        """Note what the process endpoint said about the subscription of a group.

        It does not say that a delivery succeeded. So the first answer to a probe that asks for no hold counts as one.
        """
        subscription = subscription_of(group)
        if outcome.hold_s is not None:
            self._hold(subscription, outcome.hold_s)
        elif outcome.is_final and subscription not in self._timers:
            self._lanes.lift_limit(subscription)

    def _hold(self, subscription: str, for_s: int) -> None:
        self._lanes.limit(subscription, 0)
        if subscription not in self._timers:
            self._timers[subscription] = self._loop.call_later(for_s, self._probe, subscription)

    def _probe(self, subscription: str) -> None:
        del self._timers[subscription]
        self._lanes.limit(subscription, 1)
        self._ended()

    def clear(self) -> None:
        """Forget all, as the pool drains."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
