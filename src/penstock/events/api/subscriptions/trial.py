"""`POST /api/v1/subscriptions/{id}/test` delivers a test event at once; `…/match` says whether an event is wanted."""

from collections.abc import Callable

from penstock.client.types import CloudEvent, Match, Trial
from penstock.delivery import Courier, delivery_request
from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.matching import EventPattern, PatternIndex
from penstock.domain.message import NO_ATTRIBUTES
from penstock.domain.order import DEFAULT_SEQUENCE, group_key
from penstock.domain.outcome import MediationResult, error_text
from penstock.domain.subscription import Subscription
from penstock.edge.clock import Clock, wall_ms
from penstock.events.accept import MEDIA_TYPES, event_of, members_of
from penstock.events.api.subscriptions.routes import named_subscription
from penstock.events.fields import MAX_BATCH_BYTES
from penstock.events.process import MESSAGE_PREFIXES, MessageTargets
from penstock.events.store import JobRepository
from penstock.http.api import Call, NoBody, NoQuery, route
from penstock.http.auth import MAY_LOOK

EVENT_TYPE = "penstock:test"
_DATA = b'{"message":"This is a test event of Penstock. Answer with any 2xx status."}'


class TrialRoutes:
    """The routes that test a subscription; nothing is stored."""

    def __init__(
        self,
        repository: JobRepository,
        courier: Courier,
        messages: MessageTargets,
        new_id: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._repository = repository
        self._courier = courier
        self._messages = messages
        self._new_id = new_id
        self._clock = clock

    @route(
        "POST",
        "/api/v1/subscriptions/{id}/test",
        summary="Deliver a test event to a subscription now, paused or not, and return the result.",
    )
    async def _try(self, call: Call[NoQuery, NoBody]) -> Trial:
        subscription = await named_subscription(self._repository, call)
        now_ms = self._clock.now_ms()
        event = StoredEvent(
            id=self._new_id(), source="penstock", type=EVENT_TYPE, received_ms=now_ms, time_ms=now_ms, data=_DATA
        )
        job = _trial_job(self._new_id(), event, subscription, now_ms)
        if job.target.startswith(MESSAGE_PREFIXES):
            delivery = await self._messages.deliver(job, event)
        else:
            opened = self._courier.secret_box.opened(subscription)
            delivery = await self._courier.deliver(delivery_request(job, event, opened, wall_ms(self._clock)))
        outcome = delivery.outcome
        return Trial(
            outcome.result is MediationResult.SUCCESS,
            outcome.status,
            delivery.duration_ms,
            delivery.response,
            error_text(outcome.error),
        )

    @route(
        "POST",
        "/api/v1/subscriptions/{id}/match",
        summary="Say whether a subscription wants an event, which is neither stored nor delivered.",
        media_types=MEDIA_TYPES,
        max_body_bytes=MAX_BATCH_BYTES,
        roles=MAY_LOOK,
    )
    async def _match(self, call: Call[NoQuery, CloudEvent]) -> Match:
        subscription = await named_subscription(self._repository, call)
        (members,) = members_of(call.content)
        event = event_of(call.body, members, self._new_id(), self._clock.now_ms())
        tenant = subscription.tenant == event.tenant
        pattern = bool(PatternIndex([(EventPattern.parse(subscription.pattern), True)]).matching(event.type))
        passes = subscription.filter.passes(event.filterable)
        return Match(tenant and pattern and passes, tenant, pattern, passes)


def _trial_job(job_id: str, event: StoredEvent, subscription: Subscription, now_ms: int) -> DispatchJob:
    return DispatchJob(
        id=job_id,
        tenant=subscription.tenant,
        type=event.type,
        event_id=event.id,
        subscription_id=subscription.id,
        group=None,
        group_key=group_key(subscription.id, None),
        sequence=DEFAULT_SEQUENCE,
        mode=subscription.mode,
        status=JobStatus.PROCESSING,
        target=subscription.target,
        pool=subscription.pool_code,
        payload=None,
        content_type=event.content_type,
        headers=NO_ATTRIBUTES,
        idempotency_key=None,
        scheduled_for_ms=None,
        due_at_ms=now_ms,
        expires_at_ms=None,
        attempt_count=0,
        delivery_count=1,
        publish_round=0,
        owner=None,
        lease_until_ms=None,
        last_error=None,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        finished_at_ms=None,
    )
