"""The pusher of one subscription: leases its messages and posts them to its endpoint.

It leases only what it may send at once: as many as the window has room for, and nothing while the endpoint's breaker
rests. So a message spends a delivery attempt only when it was really sent.

What is counted of the pushes of one subscription.

How many pushes of one subscription may be outstanding: a slow start that grows while the endpoint keeps up.
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

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0)


class PushOutcome(StrEnum):
    """How a push ended."""

    ACKED = "acked"
    REFUSED = "refused"
    """An answer other than 2xx."""
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"
    FORBIDDEN = "forbidden"
    """The egress guard kept it from leaving."""


class PushCounts:
    """Pushes by outcome, those under way, and how long the endpoint took."""

    def __init__(self) -> None:
        self.ended: Counter[PushOutcome] = Counter()
        self.outstanding = 0
        self.seconds = Histogram(BUCKETS_S)

    def begin(self) -> None:
        """A push begins."""
        self.outstanding += 1

    def end(self, outcome: PushOutcome, seconds: float) -> None:
        """A push has ended."""
        self.outstanding -= 1
        self.ended[outcome] += 1
        self.seconds.observe(seconds)


FIRST_SIZE = 3
LARGEST_SIZE = 1000
LARGEST_BYTES = 64 * MIB


class PushWindow:
    """Grows by one with each success, so that it doubles in a round trip; halves when what was sent since fails."""

    def __init__(self) -> None:
        self.size = FIRST_SIZE
        self.outstanding = 0
        self._outstanding_bytes = 0
        self._generation = 0

    @property
    def room(self) -> int:
        """How many more messages may be sent."""
        return self.size - self.outstanding if self.room_bytes > 0 else 0

    @property
    def room_bytes(self) -> int:
        """How many more bytes may be sent."""
        return LARGEST_BYTES - self._outstanding_bytes

    def begin(self, size_bytes: int) -> int:
        """A message is sent; gives the generation to end it with."""
        self.outstanding += 1
        self._outstanding_bytes += size_bytes
        return self._generation

    def end(self, generation: int, size_bytes: int, *, succeeded: bool) -> None:
        """A message was answered. One failure counts for all that were sent with the same size of the window."""
        used = self.outstanding * 2 >= self.size
        self.outstanding -= 1
        self._outstanding_bytes -= size_bytes
        if succeeded:
            # A window that nobody fills says nothing about what the endpoint can take.
            self.size = min(self.size + used, LARGEST_SIZE)
        elif generation == self._generation:
            self.size = max(1, self.size // 2)
            self._generation += 1


log = logging.getLogger(__name__)

_DAY_S = 86_400.0
# A lease is longer than its request may take: the request has ended before the message can be delivered again.
_MARGIN_MS = 10 * SECOND_MS


class _Ending(NamedTuple):
    outcome: PushOutcome
    reason: str = ""


class Pusher:
    """Pushes until it is stopped, or its subscription goes away or is detached."""

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
        """Push; returns when it was stopped and what is under way has ended."""
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
        """Send no more; whoever calls this answers the waiting leases of the subscription too."""
        self._stopping = True
        self._changed.set()

    # Whether to send

    async def _when_ready(self) -> BrokerSubscription | None:
        """The subscription, as soon as a message of it may be sent; None when none will be."""
        while not self._stopping:
            rest_s = self._rest_s()
            if self._window.room > 0 and rest_s is None:
                break
            await self._change(rest_s)
        try:
            subscription = self._broker.rules.subscription(self._name)
        except SubscriptionNotFound:
            return None
        return None if self._stopping or subscription.config.detached else subscription

    async def _lease(self, subscription: BrokerSubscription) -> list[Entry]:
        room = self._window.room if self._breaker.state is CLOSED else 1
        return await self._broker.lease(
            subscription,
            room,
            max_bytes=self._window.room_bytes,
            lease_ms=subscription.config.options.ack_deadline_seconds * SECOND_MS + _MARGIN_MS,
            wait_s=_DAY_S,
        )

    async def _admission(self) -> int | None:
        """The breaker's ticket, which may have opened since the message was leased; None when it is too late."""
        while (ticket := self._breaker.admit(self._clock.now_ms())) is None and not self._stopping:
            await self._change(self._rest_s())
        return ticket

    def _rest_s(self) -> float | None:
        """How long the endpoint is still left alone; None when it is not."""
        breaker = self._breaker
        if breaker.state is not OPEN or breaker.opened_ms is None:
            return None
        left_ms = breaker.opened_ms + OPEN_MS - self._clock.now_ms()
        return left_ms / 1000 if left_ms > 0 else None

    async def _change(self, within_s: float | None) -> None:
        """Wait until a push has ended or the pusher is stopped, or for so long."""
        self._changed.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return

    # One message

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
            return self._unsent(ticket, PushOutcome.TIMED_OUT, "its lease ran out before it could be sent")
        try:
            head, body = self._format.request(entry, counts_attempts=options.dead_letter_policy is not None)
        except Exception as error:
            log.exception("a message cannot be written as a push request", extra={"queue": self._name})
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
            log.error("a pushed message cannot be settled and comes again: %s", error, extra={"queue": self._name})

    def _give_back(self, subscription: BrokerSubscription, entry: Entry) -> None:
        self._broker.set_ack_deadlines(subscription, [(ack_id_of(entry, subscription.tag), 0)])

    def _warn(self, ending: _Ending) -> None:
        """Say what is wrong with the endpoint, once a minute."""
        now_ms = self._clock.now_ms()
        if now_ms - self._warned_ms >= MINUTE_MS:
            self._warned_ms = now_ms
            log.warning("cannot push to %s: %s", self._format.endpoint, ending.reason, extra={"queue": self._name})


def _read(answer: Answer) -> MediationOutcome:
    """Go by the status alone, as Google does: the body of an answer means nothing here."""
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
