"""From an event to the jobs it causes: one for each subscription that wants it. Pure; the engines share it."""

from collections.abc import Iterable

from penstock.domain.event import Event
from penstock.domain.ids import decode_tsid
from penstock.domain.job import NewJob
from penstock.domain.matching import EventPattern, PatternIndex
from penstock.domain.subscription import Subscription
from penstock.events.replay import COPY_JOINT

_JOINT = "-"


class FanOut:
    """All subscriptions, ready to be asked about events."""

    def __init__(self, subscriptions: Iterable[Subscription]) -> None:
        self._index = PatternIndex((EventPattern.parse(wanting.pattern), wanting) for wanting in subscriptions)

    def wanting(self, event: Event) -> list[Subscription]:
        """The subscriptions of the event's tenant whose pattern and filter take it."""
        attributes = event.filterable
        return [
            subscription
            for subscription in self._index.matching(event.type)
            if subscription.tenant == event.tenant and subscription.filter.passes(attributes)
        ]

    def jobs(self, event: Event) -> list[NewJob]:
        """The jobs an event causes. Events of a group are told in order, with ids in that order."""
        return [job_for(event, subscription) for subscription in self.wanting(event)]


def job_id_for(event_id: str, subscription_id: str) -> str:
    """The id of the job that brings an event to a subscription: the same whoever makes it, and however often."""
    return f"{event_id}{_JOINT}{subscription_id}"


def check_job_id(text: str) -> None:
    """ValueError when it is none: an id alone of a job without an event, one of `job_id_for`, or a copy's of either."""
    original, is_copy, replay_id = text.partition(COPY_JOINT)
    event_id, joint, subscription_id = original.partition(_JOINT)
    decode_tsid(event_id)
    if joint:
        decode_tsid(subscription_id)
    if is_copy:
        decode_tsid(replay_id)


def job_for(event: Event, subscription: Subscription) -> NewJob:
    """The job that brings an event to a subscription; its id makes it the only one."""
    return NewJob(
        id=job_id_for(event.id, subscription.id),
        target=subscription.target,
        # The event's age, not the job's: a late fan-out keeps the order of the events.
        created_at_ms=event.received_ms,
        type=event.type,
        event_id=event.id,
        subscription_id=subscription.id,
        tenant=event.tenant,
        group=event.group,
        mode=subscription.mode,
        pool=subscription.pool,
        content_type=event.content_type,
    )
