"""Delivers one job again: attempt after attempt, each recorded before the next.

| the subscriber                               | what follows                                                          |
|----------------------------------------------|-----------------------------------------------------------------------|
| 2xx                                          | done                                                                  |
| no answer, 5xx, 408, 425                     | again after 1 and 2 seconds, as the router does; then it fails        |
| `"ack": false`, 429, its breaker is open     | again after the delay it named, else 30 s; fails after two minutes    |
| anything else, or no request is possible     | fails                                                                 |

A failed job can be tried again with `--resume`.
"""

import asyncio
from collections.abc import Mapping
from enum import Enum, auto

from penstock.delivery import Courier, SecretUnreadable, WebhookDelivery, delivery_request, undeliverable
from penstock.domain.errors import InvalidArgument
from penstock.domain.job import Attempt
from penstock.domain.outcome import AttemptOutcome, MediationOutcome, error_text, retry_delay_s
from penstock.domain.replay import ReplayAttempt, ReplayProgress, as_copy
from penstock.domain.subscription import Subscription
from penstock.edge.clock import Clock
from penstock.events.process import judge
from penstock.events.store import ReplayLoad, ReplayPart, Replays
from penstock.history.replay.timetable import ReplayPace

NOTHING = ReplayProgress()

PATIENCE_S = 120
"""How long a job may be deferred before it fails."""

AT_ONCE = 64
"""How many deliveries a task has in progress."""


class JobDelivery:
    """Delivers the jobs of one task."""

    def __init__(
        self, replay_id: str, courier: Courier, outcomes: "OutcomeWriter", pace: ReplayPace, clock: Clock
    ) -> None:
        self._replay_id = replay_id
        self._courier = courier
        self._outcomes = outcomes
        self._pace = pace
        self._clock = clock
        self._sending = asyncio.Semaphore(AT_ONCE)

    async def deliver(self, load: ReplayLoad, subscriptions: Mapping[str, Subscription]) -> "DeliveryEnd":
        """Deliver a job, with retries."""
        spent, deferred_s, number = 0, 0, load.deliveries
        subscription = subscriptions.get(load.job.subscription_id or "")
        while True:
            async with self._sending:
                # Taken inside the semaphore, because a slot taken before the wait would be past after it.
                if await self._stopped_within(self._pace.wait_s()):
                    return DeliveryEnd.STOPPED
                number += 1
                at_ms = self._clock.now_ms()
                delivery = await self._deliver(load, subscription, number, at_ms)
            outcome = judge(load.job, subscription, delivery.outcome, at_ms, 0).outcome
            made = ReplayAttempt(load.job.id, _attempt(number, outcome, at_ms, delivery))
            if outcome is AttemptOutcome.DELIVERED:
                await self._outcomes.record(made, ReplayProgress(done=1))
                return DeliveryEnd.DELIVERED
            deferred = outcome is AttemptOutcome.DEFERRED
            spent += not deferred
            delay_s = next_delay_s(outcome, delivery.outcome, spent, deferred_s)
            await self._outcomes.record(made, NOTHING if delay_s is not None else ReplayProgress(failed=1))
            if delay_s is None:
                return DeliveryEnd.FAILED
            deferred_s += delay_s if deferred else 0
            if await self._stopped_within(delay_s):
                return DeliveryEnd.STOPPED

    async def _deliver(
        self, load: ReplayLoad, subscription: Subscription | None, number: int, at_ms: int
    ) -> WebhookDelivery:
        job = load.job
        if job.event_id is not None and load.event is None:
            return undeliverable("its event is no longer kept")
        if job.subscription_id is not None and subscription is None:
            return undeliverable("its subscription was deleted")
        if subscription is not None:
            subscription = self._courier.secret_box.opened(subscription)
        try:
            opened = self._courier.secret_box.opened_job(job)
            request = delivery_request(as_copy(opened, self._replay_id, number), load.event, subscription, at_ms)
        except (InvalidArgument, SecretUnreadable) as error:
            return undeliverable(error.message)
        return await self._courier.deliver(request)

    async def _stopped_within(self, delay_s: float) -> bool:
        stopped = self._outcomes.stopped
        if delay_s <= 0:
            return stopped.is_set()
        try:
            async with asyncio.timeout(delay_s):
                await stopped.wait()
        except TimeoutError:
            return False
        return True


class DeliveryEnd(Enum):
    """How the delivery of a job ended."""

    DELIVERED = auto()
    FAILED = auto()
    STOPPED = auto()


def next_delay_s(outcome: AttemptOutcome, delivered: MediationOutcome, spent: int, deferred_s: int) -> int | None:
    """Return how long to wait before the next attempt; None if the job fails."""
    if outcome is AttemptOutcome.DEFERRED:
        delay_s = delivered.effective_delay_s
        return delay_s if deferred_s + delay_s <= PATIENCE_S else None
    return retry_delay_s(delivered, spent)


def _attempt(number: int, outcome: AttemptOutcome, at_ms: int, delivery: WebhookDelivery) -> Attempt:
    return Attempt(
        number=number,
        outcome=outcome,
        at_ms=at_ms,
        duration_ms=delivery.duration_ms,
        status_code=delivery.outcome.status,
        response=delivery.response,
        error=error_text(delivery.outcome.error),
    )


class OutcomeWriter:
    """Records the outcomes of a task's deliveries in bulk; `stopped` is set once the replay should stop.

    Outcomes that arrive during a write go into the next one.
    """

    def __init__(self, replays: Replays, part: ReplayPart) -> None:
        self._replays = replays
        self._part = part
        self._waiting: list[tuple[ReplayAttempt | None, ReplayProgress, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self.stopped = asyncio.Event()

    async def record(self, attempt: ReplayAttempt | None, by: ReplayProgress = NOTHING) -> None:
        """Return when the outcome is stored; ReplayTakenOver or DatabaseFailed if it is not."""
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((attempt, by, kept))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="write outcomes")
        await kept

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            by = ReplayProgress(*(sum(counts) for counts in zip(*(_counts(of) for _, of, _ in batch), strict=True)))
            attempts = [attempt for attempt, _, _ in batch if attempt is not None]
            try:
                if not await self._replays.record(self._part, attempts, by):
                    self.stopped.set()
            except Exception as error:
                _settle(batch, error)
            else:
                _settle(batch, None)
        self._writing = None


def _counts(by: ReplayProgress) -> tuple[int, int, int]:
    return by.done, by.failed, by.held_back


def _settle(
    batch: list[tuple[ReplayAttempt | None, ReplayProgress, "asyncio.Future[None]"]], error: Exception | None
) -> None:
    for _, _, kept in batch:
        if kept.done():
            continue
        if error is None:
            kept.set_result(None)
        else:
            kept.set_exception(error)
