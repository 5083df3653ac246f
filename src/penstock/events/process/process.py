"""The process endpoint's work: a pointer has come for a job; deliver it, and say what becomes of the pointer.

A failed delivery makes its job PENDING again, to be published when due, and the pointer is acknowledged: a retry of
hours holds no queue's group, a blocked group waits in the database, and followers that may pass are free to.

What the process endpoint counts.
"""

import asyncio
import logging

import msgspec

from penstock.delivery import Courier, DeliveryRequest, WebhookDelivery, delivery_request, undeliverable
from penstock.domain.errors import InvalidArgument, NotFound, PenstockError
from penstock.domain.event import StoredEvent
from penstock.domain.job import Attempt, DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.limits import SECOND_MS
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.subscription import Subscription
from penstock.edge.clock import Clock
from penstock.edge.randomness import random_share
from penstock.events.process.dead_letters import DeadLetters
from penstock.events.process.verdict import Judgement, judge, told
from penstock.events.store import Begin, Beginning, Done, JobRepository
from penstock.events.tracing import record_delivery
from penstock.ops.telemetry import Metrics, NoSpans, Spans


class ProcessMetrics:
    """Deliveries to subscribers, and pointers that led to none."""

    def __init__(self, metrics: Metrics) -> None:
        self._deliveries = metrics.counter(
            "job_deliveries", "Deliveries to subscribers, by how the attempt ended.", ("outcome",)
        )
        self._duration = metrics.histogram("job_delivery_seconds", "Time that subscribers took to answer.")
        self._not_begun = metrics.counter(
            "job_pointers_without_delivery", "Pointers whose job was not delivered, by the reason.", ("reason",)
        )
        self._given_up = metrics.counter("jobs_given_up", "Jobs that ended in ERROR.")
        self._paused = metrics.counter("subscriptions_gone", "Subscriptions paused because they answered 410.")

    def delivered(self, outcome: AttemptOutcome, duration_ms: int) -> None:
        """A delivery has ended."""
        self._deliveries.labels(outcome.value).inc()
        self._duration.observe(duration_ms / 1000)

    def not_begun(self, reason: Beginning) -> None:
        """A pointer came whose job could not be delivered."""
        self._not_begun.labels(reason.name).inc()

    def given_up(self) -> None:
        """A job ended in ERROR."""
        self._given_up.inc()

    def paused(self) -> None:
        """A subscription was paused."""
        self._paused.inc()


log = logging.getLogger(__name__)

LEASE_MS = 60 * SECOND_MS
"""How long a delivery is believed in: after a crash its job is published again when this is over."""

MARGIN_MS = 30 * SECOND_MS
"""What a delivery takes at most beside its time-out."""

LONGEST_DELAY_S = 60


class Processed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What becomes of the pointer: it leaves the queue, or comes again after the delay."""

    ack: bool
    delay_seconds: int | None = None


ACK = Processed(True)


class _Load(msgspec.Struct, frozen=True):
    """A job with what its delivery needs."""

    job: DispatchJob
    event: StoredEvent | None
    subscription: Subscription | None


class Processor:
    """Delivers jobs; `owner` names this node in their leases."""

    def __init__(
        self,
        repository: JobRepository,
        courier: Courier,
        dead_letters: DeadLetters,
        metrics: ProcessMetrics,
        clock: Clock,
        owner: str,
        spans: Spans | None = None,
    ) -> None:
        self._repository = repository
        self._courier = courier
        self._dead_letters = dead_letters
        self._metrics = metrics
        self._clock = clock
        self._owner = owner
        self._spans = spans or NoSpans()

    async def process(self, job_id: str) -> Processed:
        """Deliver a job if it is its turn; DatabaseFailed if nobody can say."""
        now_ms = self._clock.now_ms()
        begin = await self._repository.begin(job_id, self._owner, now_ms, now_ms + LEASE_MS)
        if begin.what is not Beginning.BEGUN or begin.job is None:
            self._metrics.not_begun(begin.what)
            return self._not_begun(job_id, begin)
        await self._deliver(begin.job)
        return ACK

    def _not_begun(self, job_id: str, begin: Begin) -> Processed:
        log.info("not delivered: %s", begin.what.name, extra={"job": job_id})
        if begin.what is not Beginning.BUSY or begin.job is None:
            return ACK
        # Whoever delivers it may have crashed: the pointer is kept until its lease is over.
        left_ms = (begin.job.lease_until_ms or 0) - self._clock.now_ms()
        return Processed(False, min(max(-(-left_ms // SECOND_MS), 1), LONGEST_DELAY_S))

    async def _deliver(self, job: DispatchJob) -> None:
        began_ms = self._clock.now_ms()
        load = _Load(job, None, None)
        try:
            load = await self._loaded(job)
            request = delivery_request(job, load.event, load.subscription, began_ms, self._spans)
        except (NotFound, InvalidArgument) as error:
            delivery = undeliverable(error.message)
        else:
            await self._stay(job, request, began_ms)
            delivery = await self._courier.deliver(request)
        await self._conclude(load, delivery, began_ms)

    async def _loaded(self, job: DispatchJob) -> _Load:
        repository = self._repository
        event, subscription = await asyncio.gather(
            _nothing() if job.event_id is None else repository.get_event(job.event_id),
            _nothing() if job.subscription_id is None else repository.get_subscription(job.subscription_id),
        )
        return _Load(job, event, subscription)

    async def _stay(self, job: DispatchJob, request: DeliveryRequest, began_ms: int) -> None:
        """Make the lease last for a subscriber that may take long."""
        needed_ms = round(request.timeout_s * SECOND_MS) + MARGIN_MS
        if needed_ms > LEASE_MS:
            await self._repository.extend_leases([job.id], began_ms + needed_ms)

    async def _conclude(self, load: _Load, delivery: WebhookDelivery, began_ms: int) -> None:
        now_ms = self._clock.now_ms()
        judgement = judge(load.job, load.subscription, delivery.outcome, now_ms, random_share())
        attempt = Attempt(
            number=load.job.delivery_count,
            outcome=judgement.outcome,
            at_ms=began_ms,
            duration_ms=delivery.duration_ms,
            status_code=delivery.outcome.status,
            response=delivery.response,
            error=told(delivery.outcome.error),
        )
        self._metrics.delivered(attempt.outcome, attempt.duration_ms)
        record_delivery(self._spans, load.job, load.event, attempt)
        # Before the job is PENDING again: the scheduler must not take it once more meanwhile.
        await self._pause(load, judgement)
        if judgement.verdict == Done(JobStatus.ERROR):
            await self._give_up(load, attempt)
        if not await self._repository.finish(load.job.id, attempt, judgement.verdict, now_ms):
            log.warning("a delivery ended after its lease: its job has moved on", extra={"job": load.job.id})

    async def _pause(self, load: _Load, judgement: Judgement) -> None:
        if judgement.pauses and load.subscription is not None:
            self._metrics.paused()
            log.warning(
                "subscription %s (%s) is paused: its endpoint answered 410 Gone; resume it when it is back",
                load.subscription.name,
                load.subscription.id,
            )
            await self._repository.pause_subscription(load.subscription.id)

    async def _give_up(self, load: _Load, attempt: Attempt) -> None:
        job, reason = load.job, attempt.error or ""
        self._metrics.given_up()
        log.warning("a job is given up after attempt %d: %s", attempt.number, reason, extra={"job": job.id})
        topic = None if load.subscription is None else load.subscription.dead_letter_topic
        if topic is None:
            return
        try:
            # Before the job is ERROR: after a crash in between there may be two copies, but never none.
            await self._dead_letters.publish(topic, job, load.event, reason)
        except PenstockError:
            log.exception("no copy went to the dead-letter topic %s; the job is kept in ERROR", topic)


async def _nothing() -> None:
    return None
