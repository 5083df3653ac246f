"""The client for code that waits for its answers."""

from collections.abc import Iterable, Iterator
from typing import Self, Unpack

from penstock.client import calls
from penstock.client.answers import Attempt, Job, NewSubscription, Pool, Receipt, RemovedSubscription, Subscription
from penstock.client.blocking_connections import BlockingConnections
from penstock.client.calls import JobFilter, SubscriptionOptions
from penstock.client.endpoint import Endpoint
from penstock.client.event import Event, encode_event, in_batches

DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_TIMEOUT_S = 30.0


class Penstock:
    """Talks to the API of a Penstock. Use it in a `with` block, or close it; threads may share it."""

    def __init__(
        self, url: str = DEFAULT_URL, token: str | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self._connections = BlockingConnections(Endpoint.parse(url, token), timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._connections.close()

    def publish(self, event: Event) -> Receipt:
        """Publish an event; safe to repeat, as the same `source` and `id` are kept once."""
        return self._connections.ask(calls.publish(encode_event(event))).events[0]

    def publish_all(self, events: Iterable[Event]) -> list[Receipt]:
        """Publish events in order, up to 1,000 in one transaction; after an error the same list may be given again."""
        asked = (self._connections.ask(calls.publish(body)) for body in in_batches(events))
        return [receipt for answer in asked for receipt in answer.events]

    def subscribe(
        self, name: str, pattern: str, target: str, **options: Unpack[SubscriptionOptions]
    ) -> NewSubscription:
        """Have events of a type such as `orders:**` delivered to a URL; the answer has the secret, this once."""
        return self._connections.ask(calls.subscribe(name, pattern, target, options))

    def subscriptions(self) -> list[Subscription]:
        """All subscriptions, the oldest first."""
        page = self._connections.ask(calls.subscriptions(None))
        found = page.subscriptions
        while page.cursor is not None:
            page = self._connections.ask(calls.subscriptions(page.cursor))
            found += page.subscriptions
        return found

    def subscription(self, subscription_id: str) -> Subscription:
        """One subscription."""
        return self._connections.ask(calls.subscription(subscription_id))

    def pause(self, subscription_id: str) -> Subscription:
        """Deliver nothing more for now; matching events wait."""
        return self._connections.ask(calls.pause(subscription_id))

    def resume(self, subscription_id: str) -> Subscription:
        """Deliver again, beginning with what has waited."""
        return self._connections.ask(calls.resume(subscription_id))

    def unsubscribe(self, subscription_id: str) -> RemovedSubscription:
        """Remove a subscription and cancel its jobs that no delivery has begun of."""
        return self._connections.ask(calls.unsubscribe(subscription_id))

    def jobs(self, **which: Unpack[JobFilter]) -> Iterator[Job]:
        """The jobs that fit, the newest first, page by page as they are asked for."""
        page = self._connections.ask(calls.jobs(which, None))
        yield from page.jobs
        while page.cursor is not None:
            page = self._connections.ask(calls.jobs(which, page.cursor))
            yield from page.jobs

    def job(self, job_id: str) -> Job:
        """One job, with its payload."""
        return self._connections.ask(calls.job(job_id))

    def attempts(self, job_id: str) -> list[Attempt]:
        """The deliveries of a job, the first one first."""
        page = self._connections.ask(calls.attempts(job_id, None))
        found = page.attempts
        while page.cursor is not None:
            page = self._connections.ask(calls.attempts(job_id, page.cursor))
            found += page.attempts
        return found

    def retry(self, *job_ids: str) -> list[str]:
        """Begin anew with jobs in ERROR: all of them or none."""
        return self._connections.ask(calls.decide("retry", job_ids)).ids

    def cancel(self, *job_ids: str) -> list[str]:
        """Give up jobs that no delivery has begun of: all of them or none."""
        return self._connections.ask(calls.decide("cancel", job_ids)).ids

    def ignore(self, *job_ids: str) -> list[str]:
        """Give up jobs in ERROR, so that what they block moves on: all of them or none."""
        return self._connections.ask(calls.decide("ignore", job_ids)).ids

    def pools(self) -> list[Pool]:
        """All pools, by code."""
        page = self._connections.ask(calls.pools(None))
        found = page.pools
        while page.cursor is not None:
            page = self._connections.ask(calls.pools(page.cursor))
            found += page.pools
        return found

    def put_pool(self, code: str, concurrency: int, rate_limit_per_minute: int | None = None) -> Pool:
        """Make a pool, or change it."""
        return self._connections.ask(calls.put_pool(Pool(code, concurrency, rate_limit_per_minute)))

    def delete_pool(self, code: str) -> Pool:
        """Remove a pool."""
        return self._connections.ask(calls.delete_pool(code))
