"""The pusher of one subscription: leases its messages and posts them to its endpoint.

It leases only what it may send immediately: as many messages as fit into the window, and none while the endpoint's
breaker is open. So a message uses a delivery attempt only if it was really sent.
"""

import asyncio
import logging
from collections import Counter
from enum import StrEnum
from typing import NamedTuple

from penstock.broker import AsyncBroker, BrokerSubscription, SubscriptionNotFound, ack_id_of
from penstock.delivery import Answer, Attempts, Client
from penstock.domain.breaker import CLOSED, NEUTRAL, OPEN, OPEN_MS, Breaker
from penstock.domain.errors import PenstockError
from penstock.domain.limits import MIB, MINUTE_MS, SECOND_MS
from penstock.domain.outcome import EgressDenied, MediationOutcome, NetworkError, Timeout, outcome_of
from penstock.domain.sketch import Histogram
from penstock.edge.clock import Clock, stopwatch
from penstock.engine import LEASED, Entry, QueueClosed
from penstock.pubsub.push.request import PushFormat

log = logging.getLogger(__name__)

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0)
FIRST_SIZE = 3
LARGEST_SIZE = 1000
LARGEST_BYTES = 64 * MIB

_DAY_S = 86_400.0
# A lease outlasts its request, so the request has ended before the message can be delivered again.
_MARGIN_MS = 10 * SECOND_MS


class PushOutcome(StrEnum):
    """How a push ended."""

    ACKED = "acked"
    REFUSED = "refused"
    """A response other than 2xx."""
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"
    FORBIDDEN = "forbidden"
    """The egress guard refused the target."""


class PushCounts:
    """Pushes by outcome, pushes in progress, and how long the endpoint took."""

    def __init__(self) -> None:
        self.ended: Counter[PushOutcome] = Counter()
        self.outstanding = 0
        self.seconds = Histogram(BUCKETS_S)

    def begin(self) -> None:
        """Count a push that starts."""
        self.outstanding += 1

    def end(self, outcome: PushOutcome, seconds: float) -> None:
        """Count a push that has ended."""
        self.outstanding -= 1
        self.ended[outcome] += 1
        self.seconds.observe(seconds)


class PushWindow:
    """How many pushes may be outstanding.

    It grows by one with each success, so it doubles in a round trip, and halves when a message sent since the last
    change fails.
    """

    def __init__(self) -> None:
        self.size = FIRST_SIZE
        self.outstanding = 0
        self._outstanding_bytes = 0
        self._generation = 0

    @property
    def free_messages(self) -> int:
        """How many more messages may be sent."""
        return self.size - self.outstanding if self.free_bytes > 0 else 0

    @property
    def free_bytes(self) -> int:
        """How many more bytes may be sent."""
        return LARGEST_BYTES - self._outstanding_bytes

    def begin(self, size_bytes: int) -> int:
        """Count a message that is sent; return the generation to pass to `end`."""
        self.outstanding += 1
        self._outstanding_bytes += size_bytes
        return self._generation

    def end(self, generation: int, size_bytes: int, *, succeeded: bool) -> None:
        """Count a message that was answered. One failure counts for all messages sent with the same window size."""
        used = self.outstanding * 2 >= self.size
        self.outstanding -= 1
        self._outstanding_bytes -= size_bytes
        if succeeded:
            # A window that is not full says nothing about what the endpoint can take.
            self.size = min(self.size + used, LARGEST_SIZE)
        elif generation == self._generation:
            self.size = max(1, self.size // 2)
            self._generation += 1


class _Ending(NamedTuple):
    outcome: PushOutcome
    reason: str = ""


class Pusher:
    """Pushes until it is stopped, or its subscription is removed or detached."""

    def __init__(
        self, broker: AsyncBroker, client: Client, clock: Clock, name: str, form: PushFormat, counts: PushCounts
    ) -> None:
        self._broker = broker
        self._attempts = Attempts(client, clock)
        self._clock = clock
        self._name = name
        self._format = form
        self._counts = counts
        self._window = PushWindow()
        self._breaker = Breaker(clock.now_ms())
        self._changed = asyncio.Event()
        self._stopping = False
        self._warned_ms = -MINUTE_MS

    async def run(self) -> None:
        """Push; return when it was stopped and all pushes in progress have ended."""
        async with asyncio.TaskGroup() as pushes:
            while (subscription := await self._when_ready()) is not None:
                try:
                    entries = await self._lease(subscription)
                except QueueClosed:
                    return
                for entry in entries:
                    ticket = await self._admission()
                    if ticket is None:
                        self._give_back(subscription, entry)
                        continue
                    generation = self._window.begin(entry.message.size_bytes)
                    pushes.create_task(self._push(subscription, entry, ticket, generation))

    def stop(self) -> None:
        """Send no more; the caller must also answer the waiting leases of the subscription."""
        self._stopping = True
        self._changed.set()

    async def _when_ready(self) -> BrokerSubscription | None:
        """Return the subscription as soon as a message of it may be sent, or None if none will be."""
        while not self._stopping:
            rest_s = self._rest_s()
            if self._window.free_messages > 0 and rest_s is None:
                break
            await self._change(rest_s)
        try:
            subscription = self._broker.rules.subscription(self._name)
        except SubscriptionNotFound:
            return None
        return None if self._stopping or subscription.config.detached else subscription

    async def _lease(self, subscription: BrokerSubscription) -> list[Entry]:
        max_messages = self._window.free_messages if self._breaker.state is CLOSED else 1
        return await self._broker.lease(
            subscription,
            max_messages,
            max_bytes=self._window.free_bytes,
            lease_ms=subscription.config.options.ack_deadline_seconds * SECOND_MS + _MARGIN_MS,
            wait_s=_DAY_S,
        )

    async def _admission(self) -> int | None:
        """Return the breaker's ticket, waiting if it has opened since the lease; None if the pusher is stopped."""
        while (ticket := self._breaker.admit(self._clock.now_ms())) is None and not self._stopping:
            await self._change(self._rest_s())
        return ticket

    def _rest_s(self) -> float | None:
        """Return how long the breaker stays open, or None if it is not open."""
        breaker = self._breaker
        if breaker.state is not OPEN or breaker.opened_ms is None:
            return None
        left_ms = breaker.opened_ms + OPEN_MS - self._clock.now_ms()
        return left_ms / 1000 if left_ms > 0 else None

    async def _change(self, within_s: float | None) -> None:
        """Wait until a push has ended, the pusher is stopped, or the time has passed."""
        self._changed.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _push(self, subscription: BrokerSubscription, entry: Entry, ticket: int, generation: int) -> None:
        ending = await self._counted_post(subscription, entry, ticket)
        acked = ending.outcome is PushOutcome.ACKED
        if acked:
            await self._ack(subscription, ack_id_of(entry, subscription.tag))
        else:
            self._warn(ending)
            self._give_back(subscription, entry)
        self._window.end(generation, entry.message.size_bytes, succeeded=acked)
        self._changed.set()

    async def _counted_post(self, subscription: BrokerSubscription, entry: Entry, ticket: int) -> _Ending:
        started_s = stopwatch()
        self._counts.begin()
        ending = await self._post(subscription, entry, ticket)
        self._counts.end(ending.outcome, stopwatch() - started_s)
        return ending

    async def _post(self, subscription: BrokerSubscription, entry: Entry, ticket: int) -> _Ending:
        options = subscription.config.options
        left_ms = entry.deadline_ms - self._clock.now_ms()
        timeout_s = min(options.ack_deadline_seconds, left_ms / 1000)
        if timeout_s <= 0 or entry.state is not LEASED:
            return self._unsent(ticket, PushOutcome.TIMED_OUT, "its lease expired before it could be sent")
        try:
            head, body = self._format.request(entry, counts_attempts=options.dead_letter_policy is not None)
        except Exception as error:
            log.exception("cannot build the push request of a message", extra={"queue": self._name})
            return self._unsent(ticket, PushOutcome.UNREACHABLE, type(error).__name__)
        outcome = await self._attempts.make(self._breaker, head, body, None, _read, timeout_s=timeout_s, ticket=ticket)
        return _ending_of(outcome)

    def _unsent(self, ticket: int, outcome: PushOutcome, reason: str) -> _Ending:
        self._breaker.settle(ticket, NEUTRAL, self._clock.now_ms())
        return _Ending(outcome, reason)

    async def _ack(self, subscription: BrokerSubscription, ack_id: str) -> None:
        try:
            await self._broker.ack_current(subscription, [ack_id])
        except PenstockError as error:
            log.error(
                "a pushed message cannot be settled and will be delivered again: %s", error, extra={"queue": self._name}
            )

    def _give_back(self, subscription: BrokerSubscription, entry: Entry) -> None:
        self._broker.set_ack_deadlines(subscription, [(ack_id_of(entry, subscription.tag), 0)])

    def _warn(self, ending: _Ending) -> None:
        """Log what is wrong with the endpoint, at most once a minute."""
        now_ms = self._clock.now_ms()
        if now_ms - self._warned_ms >= MINUTE_MS:
            self._warned_ms = now_ms
            log.warning("cannot push to %s: %s", self._format.endpoint, ending.reason, extra={"queue": self._name})


def _read(answer: Answer) -> MediationOutcome:
    """Judge by the status alone, as Google does; the body has no meaning here."""
    return outcome_of(answer.status, None, b"", 0)


def _ending_of(outcome: MediationOutcome) -> _Ending:
    match outcome.error:
        case None:
            return _Ending(PushOutcome.ACKED)
        case Timeout(after_s=after_s):
            return _Ending(PushOutcome.TIMED_OUT, f"no answer within {after_s:g} s")
        case NetworkError(detail=detail):
            return _Ending(PushOutcome.UNREACHABLE, detail)
        case EgressDenied(detail=detail):
            return _Ending(PushOutcome.FORBIDDEN, detail)
        case _:
            return _Ending(PushOutcome.REFUSED, f"it answered {outcome.status}")
