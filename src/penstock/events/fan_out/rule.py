"""The jobs that an event causes: one for each matching subscription. Pure; both engines share the rule."""

from collections.abc import Sequence

from penstock.domain.event import StoredEvent
from penstock.domain.ids import job_id_for
from penstock.domain.job import NewJob
from penstock.domain.matching import EventPattern, PatternIndex
from penstock.domain.subscription import Subscription


class FanOut:
    """Matches events with all subscriptions."""

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self._index = PatternIndex((EventPattern.parse(wanting.pattern), wanting) for wanting in subscriptions)
        self._filtered = frozenset(each.id for each in subscriptions if not each.filter.is_empty)

    def wanting(self, event: StoredEvent) -> list[Subscription]:
        """Return the subscriptions of the event's tenant whose pattern and filter match."""
        matching = [each for each in self._index.matching(event.type) if each.tenant == event.tenant]
        # Most events have no subscription with a filter, and a filter needs all attributes.
        if not self._filtered or not any(each.id in self._filtered for each in matching):
            return matching
        filterable = event.filterable
        return [each for each in matching if each.id not in self._filtered or each.filter.passes(filterable)]

    def jobs(self, event: StoredEvent) -> list[NewJob]:
        """Return the jobs of an event. The ids of jobs have the order of the events of a group."""
        return [job_for(event, subscription) for subscription in self.wanting(event)]


def job_for(event: StoredEvent, subscription: Subscription) -> NewJob:
    """Return the job that delivers an event to a subscription; its id makes it unique."""
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
        mode=subscription.mode_of(event.group),
        high_priority=event.high_priority or subscription.high_priority,
        pool=subscription.pool_code,
        content_type=event.content_type,
    )
