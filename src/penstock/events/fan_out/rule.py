"""From an event to the jobs it causes: one for each subscription that wants it. Pure; the engines share it."""

from collections.abc import Iterable

from penstock.domain.event import StoredEvent
from penstock.domain.ids import job_id_for
from penstock.domain.job import NewJob
from penstock.domain.matching import EventPattern, PatternIndex
from penstock.domain.subscription import Subscription


class FanOut:
    """All subscriptions, ready to be asked about events."""

    def __init__(self, subscriptions: Iterable[Subscription]) -> None:
        self._index = PatternIndex((EventPattern.parse(wanting.pattern), wanting) for wanting in subscriptions)

    def wanting(self, event: StoredEvent) -> list[Subscription]:
        """The subscriptions of the event's tenant whose pattern and filter take it."""
        attributes = event.filterable
        return [
            subscription
            for subscription in self._index.matching(event.type)
            if subscription.tenant == event.tenant and subscription.filter.passes(attributes)
        ]

    def jobs(self, event: StoredEvent) -> list[NewJob]:
        """The jobs an event causes. Events of a group are told in order, with ids in that order."""
        return [job_for(event, subscription) for subscription in self.wanting(event)]


def job_for(event: StoredEvent, subscription: Subscription) -> NewJob:
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
