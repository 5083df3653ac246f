"""The client for asyncio."""

from collections.abc import AsyncIterator, Iterable
from typing import Self, Unpack

from penstock.client import calls
from penstock.client.answers import Attempt, Job, NewSubscription, Pool, Receipt, RemovedSubscription, Subscription
from penstock.client.async_connections import AsyncConnections
from penstock.client.blocking import DEFAULT_TIMEOUT_S, DEFAULT_URL
from penstock.client.calls import JobFilter, SubscriptionOptions
from penstock.client.endpoint import Endpoint
from penstock.client.event import Event, encode_event, in_batches


class AsyncPenstock:
    """Talks to the API of a Penstock. Use it in an `async with` block, or close it; tasks may share it."""

    def __init__(
        self, url: str = DEFAULT_URL, token: str | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self._connections = AsyncConnections(Endpoint.parse(url, token), timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        await self._connections.close()

    async def publish(self, event: Event) -> Receipt:
        """Publish an event; safe to repeat, as the same `source` and `id` are kept once."""
        return (await self._connections.ask(calls.publish(encode_event(event)))).events[0]

    async def publish_all(self, events: Iterable[Event]) -> list[Receipt]:
        """Publish events in order, up to 1,000 in one transaction; after an error the same list may be given again."""
        receipts: list[Receipt] = []
        for body in in_batches(events):
            receipts += (await self._connections.ask(calls.publish(body))).events
        return receipts

    async def subscribe(
        self, name: str, pattern: str, target: str, **options: Unpack[SubscriptionOptions]
    ) -> NewSubscription:
        """Have events of a type such as `orders:**` delivered to a URL; the answer has the secret, this once."""
        return await self._connections.ask(calls.subscribe(name, pattern, target, options))

    async def subscriptions(self) -> list[Subscription]:
        """All subscriptions, the oldest first."""
        page = await self._connections.ask(calls.subscriptions(None))
        found = page.subscriptions
        while page.cursor is not None:
            page = await self._connections.ask(calls.subscriptions(page.cursor))
            found += page.subscriptions
        return found

    async def subscription(self, subscription_id: str) -> Subscription:
        """One subscription."""
        return await self._connections.ask(calls.subscription(subscription_id))

    async def pause(self, subscription_id: str) -> Subscription:
        """Deliver nothing more for now; matching events wait."""
        return await self._connections.ask(calls.pause(subscription_id))

    async def resume(self, subscription_id: str) -> Subscription:
        """Deliver again, beginning with what has waited."""
        return await self._connections.ask(calls.resume(subscription_id))

    async def unsubscribe(self, subscription_id: str) -> RemovedSubscription:
        """Remove a subscription and cancel its jobs that no delivery has begun of."""
        return await self._connections.ask(calls.unsubscribe(subscription_id))

    async def jobs(self, **which: Unpack[JobFilter]) -> AsyncIterator[Job]:
        """The jobs that fit, the newest first, page by page as they are asked for."""
        page = await self._connections.ask(calls.jobs(which, None))
        for job in page.jobs:
            yield job
        while page.cursor is not None:
            page = await self._connections.ask(calls.jobs(which, page.cursor))
            for job in page.jobs:
                yield job

    async def job(self, job_id: str) -> Job:
        """One job, with its payload."""
        return await self._connections.ask(calls.job(job_id))

    async def attempts(self, job_id: str) -> list[Attempt]:
        """The deliveries of a job, the first one first."""
        page = await self._connections.ask(calls.attempts(job_id, None))
        found = page.attempts
        while page.cursor is not None:
            page = await self._connections.ask(calls.attempts(job_id, page.cursor))
            found += page.attempts
        return found

    async def retry(self, *job_ids: str) -> list[str]:
        """Begin anew with jobs in ERROR: all of them or none."""
        return (await self._connections.ask(calls.decide("retry", job_ids))).ids

    async def cancel(self, *job_ids: str) -> list[str]:
        """Give up jobs that no delivery has begun of: all of them or none."""
        return (await self._connections.ask(calls.decide("cancel", job_ids))).ids

    async def ignore(self, *job_ids: str) -> list[str]:
        """Give up jobs in ERROR, so that what they block moves on: all of them or none."""
        return (await self._connections.ask(calls.decide("ignore", job_ids))).ids

    async def pools(self) -> list[Pool]:
        """All pools, by code."""
        page = await self._connections.ask(calls.pools(None))
        found = page.pools
        while page.cursor is not None:
            page = await self._connections.ask(calls.pools(page.cursor))
            found += page.pools
        return found

    async def put_pool(self, code: str, concurrency: int, rate_limit_per_minute: int | None = None) -> Pool:
        """Make a pool, or change it."""
        return await self._connections.ask(calls.put_pool(Pool(code, concurrency, rate_limit_per_minute)))

    async def delete_pool(self, code: str) -> Pool:
        """Remove a pool."""
        return await self._connections.ask(calls.delete_pool(code))
