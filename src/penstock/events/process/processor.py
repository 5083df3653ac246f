"""Delivers the job of a pointer, and decides what happens to the pointer.

A failed delivery makes its job PENDING again, to be published when it is due, and the pointer is acknowledged. So a
retry after hours blocks no group of the queue, and jobs that may pass the failed one do.
"""

import logging
from functools import lru_cache
from typing import Protocol

import msgspec

from penstock.delivery import (
    Courier,
    DeliveryRequest,
    SecretUnreadable,
    WebhookDelivery,
    delivery_request,
    undeliverable,
)
from penstock.domain.errors import InvalidArgument, NotFound, PenstockError
from penstock.domain.event import StoredEvent
from penstock.domain.job import Attempt, DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.limits import SECOND_MS
from penstock.domain.outcome import AttemptOutcome, CircuitOpen, MediationOutcome, error_text
from penstock.domain.subscription import Subscription
from penstock.edge.clock import Clock, wall_ms
from penstock.edge.randomness import random_share
from penstock.events.errors import EventNotFound
from penstock.events.process.batches import DeliveryBatches, DeliveryStart
from penstock.events.process.dead_letters import DeadLetters
from penstock.events.process.message_targets import MESSAGE_PREFIXES, MessageTargets
from penstock.events.process.subscriptions import KnownSubscriptions
from penstock.events.process.verdict import Judgement, judge
from penstock.events.store import Begin, Beginning, Done, EndedDelivery, JobRepository, TryLater
from penstock.events.tracing import record_delivery
from penstock.ops.telemetry import Metrics, NoSpans, Spans

log = logging.getLogger(__name__)

MARGIN_MS = 30 * SECOND_MS
"""How long a delivery may take beyond its timeout."""

BUSY_DELAY_S = 10
"""When the pointer of a job that is being delivered comes again."""

_NOT_BEGUN = {
    Beginning.HELD_BACK: "an earlier one of its group is not finished, or its subscription is paused",
    Beginning.BUSY: "another delivery of it, or of its group, is under way",
    Beginning.NOT_DUE: "it is due later",
    Beginning.FINAL: "it is finished",
    Beginning.UNKNOWN: "there is no such job",
}


class RequestPermit(Protocol):
    """The right to send one request; a pool has a limited number of them."""

    async def take(self) -> None:
        """Wait for the right."""

    def give_back(self, answer: MediationOutcome | None = None) -> None:
        """Give it to the next, if it was taken; `answer` is that of the subscription's own endpoint."""


class _Unlimited:
    """Permits for whoever asks: the caller has limits of its own."""

    async def take(self) -> None:
        pass

    def give_back(self, answer: MediationOutcome | None = None) -> None:
        pass


_UNLIMITED = _Unlimited()
_NO_MESSAGES = MessageTargets()


class Processor:
    """Delivers jobs."""

    def __init__(
        self,
        repository: JobRepository,
        courier: Courier,
        dead_letters: DeadLetters,
        metrics: "ProcessMetrics",
        clock: Clock,
        spans: Spans | None = None,
        messages: MessageTargets = _NO_MESSAGES,
    ) -> None:
        self._repository = repository
        self._deliveries = DeliveryBatches(repository, clock)
        self._subscriptions = KnownSubscriptions(repository, courier.secret_box)
        self._courier = courier
        self._dead_letters = dead_letters
        self._metrics = metrics
        self._clock = clock
        self._spans = spans or NoSpans()
        self._messages = messages

    async def process(self, job_id: str) -> "Processed":
        """Deliver a job if it is its turn; DatabaseFailed if the database does not answer."""
        return await self.process_known(job_id, _UNLIMITED) or ACK

    async def process_known(self, job_id: str, permit: RequestPermit) -> "Processed | None":
        """Deliver a job as `process` does, with a permit for its request; None if there is no such job."""
        start = await self._deliveries.begin(job_id)
        begin = start.begin
        if begin.what is Beginning.BEGUN and begin.job is not None:
            try:
                hold_s = await self._deliver(begin.job, start, permit)
            finally:
                self._deliveries.is_over(begin.job)
            return ACK if hold_s is None else Processed(True, hold_seconds=hold_s)
        self._metrics.not_begun(begin.what)
        answer = self._not_begun(job_id, begin)
        return None if begin.what is Beginning.UNKNOWN else answer

    def _not_begun(self, job_id: str, begin: Begin) -> "Processed":
        # A failed job holds back several, which is not worth a line each.
        level = logging.DEBUG if begin.what is Beginning.HELD_BACK else logging.INFO
        log.log(level, "the job is not delivered now: %s", _NOT_BEGUN[begin.what], extra={"job": job_id})
        # The delivery that is under way may fail, so the pointer stays.
        return Processed(False, BUSY_DELAY_S) if begin.what is Beginning.BUSY else ACK

    async def _deliver(self, job: DispatchJob, start: DeliveryStart, permit: RequestPermit) -> int | None:
        """Deliver a job; return for how long its subscription is refused, if its breaker is open."""
        context = _JobContext(job, start.begin.event, None)
        try:
            context = await self._loaded(job, start)
            await permit.take()
            began_ms = self._clock.now_ms()
            if job.target.startswith(MESSAGE_PREFIXES):
                delivery = await self._messages.deliver(job, context.event)
                permit.give_back()
                await self._conclude(context, delivery, began_ms)
                return None
            opened = self._courier.secret_box.opened_job(job) if job.headers else job
            request = delivery_request(opened, context.event, context.subscription, wall_ms(self._clock), self._spans)
        except (NotFound, InvalidArgument, SecretUnreadable) as error:
            began_ms = self._clock.now_ms()
            delivery = undeliverable(error.message)
        else:
            if (needed_until_ms := _needed_until_ms(job, request, began_ms)) is not None:
                await self._repository.extend_leases([job.id], needed_until_ms)
            delivery = await self._courier.deliver(request)
        permit.give_back(delivery.outcome if context.is_for_subscribed_target else None)
        await self._conclude(context, delivery, began_ms)
        refusal = delivery.outcome.error
        return refusal.retry_s if isinstance(refusal, CircuitOpen) and context.is_for_subscribed_target else None

    async def _loaded(self, job: DispatchJob, start: DeliveryStart) -> "_JobContext":
        event, subscription = start.begin.event, None
        if job.event_id is not None and event is None:
            raise EventNotFound(job.event_id)
        if job.subscription_id is not None:
            subscription = await self._subscriptions.get(job.subscription_id, start.subscription_changes)
        return _JobContext(job, event, subscription)

    async def _conclude(self, context: "_JobContext", delivery: WebhookDelivery, began_ms: int) -> None:
        now_ms = self._clock.now_ms()
        judgement = judge(context.job, context.subscription, delivery.outcome, now_ms, random_share())
        attempt = Attempt(
            number=context.job.delivery_count,
            outcome=judgement.outcome,
            at_ms=began_ms,
            duration_ms=delivery.duration_ms,
            status_code=delivery.outcome.status,
            response=delivery.response,
            error=error_text(delivery.outcome.error),
        )
        self._metrics.delivered(attempt.outcome, attempt.duration_ms)
        record_delivery(self._spans, context.job, context.event, attempt)
        # Before the job is PENDING again, so that the scheduler does not take it.
        if judgement.pauses and context.subscription is not None:
            await self._pause(context.subscription)
        if judgement.verdict == Done(JobStatus.ERROR):
            await self._give_up(context, attempt)
        elif judgement.outcome is AttemptOutcome.FAILED:
            _log_failure(context, attempt, judgement, now_ms)
        if not await self._deliveries.finish(EndedDelivery(context.job.id, attempt, judgement.verdict, now_ms)):
            log.warning(
                "a delivery ended after its lease: its job has changed meanwhile", extra={"job": context.job.id}
            )

    async def _pause(self, subscription: Subscription) -> None:
        self._metrics.paused()
        log.warning(
            "subscription %s (%s) is paused: its endpoint answered 410 Gone; resume it when it is back",
            subscription.name,
            subscription.id,
        )
        await self._repository.pause_subscription(subscription.id)

    async def _give_up(self, context: "_JobContext", attempt: Attempt) -> None:
        job, reason = context.job, attempt.error or ""
        self._metrics.given_up()
        log.warning("a job ended in ERROR after attempt %d: %s", job.attempt_count + 1, reason, extra={"job": job.id})
        topic = None if context.subscription is None else context.subscription.dead_letter_topic
        if topic is None:
            return
        try:
            # Before the job is ERROR: a crash in between may cause two copies, but never none.
            await self._dead_letters.publish(topic, job, context.event, reason)
        except PenstockError:
            log.exception("cannot publish to the dead-letter topic %s; the job stays in ERROR", topic)


def _needed_until_ms(job: DispatchJob, request: DeliveryRequest, began_ms: int) -> int | None:
    """Return until when a job's lease is needed, if it would count as lost before its subscriber has answered."""
    until_ms = began_ms + round(request.timeout_s * SECOND_MS) + MARGIN_MS
    return until_ms if job.lease_until_ms is not None and job.lease_until_ms < until_ms else None


def _log_failure(context: "_JobContext", attempt: Attempt, judgement: Judgement, now_ms: int) -> None:
    job, later = context.job, judgement.verdict
    then = (
        f"the next is in {(later.due_at_ms - now_ms) / SECOND_MS:.0f} s" if isinstance(later, TryLater) else "expired"
    )
    name = None if context.subscription is None else context.subscription.name
    log.info(
        "attempt %d failed: %s; %s",
        job.attempt_count + 1,  # of the schedule: deferrals are none
        attempt.error,
        then,
        extra={"job": job.id, "subscription": name, "group": job.group_key, "pool": job.pool},
    )


class Processed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What happens to the pointer: it leaves the queue, or returns after the delay.

    `hold_seconds` is how long the breaker refuses the other jobs of its subscription, too.
    """

    ack: bool
    delay_seconds: int | None = None
    hold_seconds: int | None = None


ACK = Processed(True)


class _JobContext(msgspec.Struct, frozen=True):
    """A job with what its delivery needs."""

    job: DispatchJob
    event: StoredEvent | None
    subscription: Subscription | None

    @property
    def is_for_subscribed_target(self) -> bool:
        """Whether it goes where all new jobs of its subscription go."""
        return self.subscription is not None and self.subscription.target == self.job.target


class ProcessMetrics:
    """Counts deliveries to subscribers, and pointers without one."""

    def __init__(self, metrics: Metrics) -> None:
        deliveries = metrics.counter("job_deliveries", "Deliveries to subscribers, by outcome.", ("outcome",))
        self._deliveries = lru_cache(len(AttemptOutcome))(lambda outcome: deliveries.labels(outcome.value))
        self._duration = metrics.histogram("job_delivery_seconds", "Time until subscribers answered.")
        self._not_begun = metrics.counter(
            "job_pointers_without_delivery", "Pointers whose job was not delivered, by reason.", ("reason",)
        )
        self._given_up = metrics.counter("jobs_given_up", "Jobs that ended in ERROR.")
        self._paused = metrics.counter("subscriptions_gone", "Subscriptions paused because they answered 410.")

    def delivered(self, outcome: AttemptOutcome, duration_ms: int) -> None:
        """Count a delivery."""
        self._deliveries(outcome).inc()
        self._duration.observe(duration_ms / 1000)

    def not_begun(self, reason: Beginning) -> None:
        """Count a pointer whose job could not be delivered."""
        self._not_begun.labels(reason.name).inc()

    def given_up(self) -> None:
        """Count a job that ended in ERROR."""
        self._given_up.inc()

    def paused(self) -> None:
        """Count a subscription that was paused."""
        self._paused.inc()
