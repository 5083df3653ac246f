"""The client for asyncio."""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Self, Unpack

from penstock.client import calls, types
from penstock.client.blocking import DEFAULT_TIMEOUT_S, DEFAULT_URL, P
from penstock.client.calls import A, ApiCall, JobOptions, JobSearch, SubscriptionChanges, SubscriptionSettings
from penstock.client.endpoint import REPEAT_AFTER_S, Endpoint
from penstock.client.event import Event, encode_event, in_batches
from penstock.delivery import (
    AnswerTimedOut,
    AnyAddress,
    ConnectFailed,
    ConnectTimedOut,
    DeliveryFailed,
    HttpClient,
    head_with,
    own_part_settings,
)
from penstock.domain.limits import MIB
from penstock.domain.signing import SigningMethod
from penstock.edge.pause import pause

MAX_ANSWER_BYTES = 512 * MIB


class AsyncPenstock:
    """Calls the API of a Penstock server. Use it in an `async with` block, or close it; tasks may share it."""

    def __init__(
        self, url: str = DEFAULT_URL, token: str | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self._connections = _Connections(Endpoint.parse(url, token), timeout_s)
        self._ask = self._connections.ask

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def publish(self, event: Event) -> types.EventReceipt:
        """Publish an event. Safe to repeat: an event with the same `source` and `id` is stored once."""
        return (await self._ask(calls.publish(encode_event(event)))).events[0]

    async def publish_all(self, events: Iterable[Event]) -> list[types.EventReceipt]:
        """Publish events in order, up to 1,000 per transaction. After an error the same list may be published again."""
        answers = [await self._ask(calls.publish(body)) for body in in_batches(events)]
        return [receipt for answer in answers for receipt in answer.events]

    async def subscribe(
        self, name: str, pattern: str, target: str, **options: Unpack[SubscriptionSettings]
    ) -> types.SubscriptionMade:
        """Deliver events of a type such as `orders:**` to a URL. Only this answer contains the secret."""
        return await self._ask(calls.subscribe(name, pattern, target, options))

    async def subscriptions(self) -> list[types.SubscriptionView]:
        """Return all subscriptions, the oldest first."""
        return [each async for page in self._pages(calls.subscriptions) for each in page.subscriptions]

    async def subscription(self, subscription_id: str) -> types.SubscriptionView:
        """Return one subscription."""
        return await self._ask(calls.subscription(subscription_id))

    async def update_subscription(
        self, subscription_id: str, **changes: Unpack[SubscriptionChanges]
    ) -> types.SubscriptionView:
        """Change the given fields; a filter or headers are replaced as a whole."""
        return await self._ask(calls.update_subscription(subscription_id, changes))

    async def pause(self, subscription_id: str) -> types.SubscriptionView:
        """Stop deliveries for now; matching events wait."""
        return await self._ask(calls.pause(subscription_id))

    async def resume(self, subscription_id: str) -> types.SubscriptionView:
        """Deliver again, starting with the events that waited."""
        return await self._ask(calls.resume(subscription_id))

    async def unsubscribe(self, subscription_id: str) -> types.SubscriptionRemoved:
        """Remove a subscription and cancel its jobs that no delivery has started for."""
        return await self._ask(calls.unsubscribe(subscription_id))

    async def rotate_secret(
        self,
        subscription_id: str,
        *,
        secret: str | None = None,
        keep_previous: bool = True,
        signature: SigningMethod | None = None,
    ) -> types.Rotated:
        """Sign with a new secret, and with the previous one too until the rotation is finished."""
        return await self._ask(calls.rotate_secret(subscription_id, types.Rotation(secret, keep_previous, signature)))

    async def public_keys(self, subscription_id: str) -> list[str]:
        """Return what verifies a subscription's Ed25519 signatures, the newest first."""
        return (await self._ask(calls.public_keys(subscription_id))).keys

    async def finish_rotation(self, subscription_id: str) -> types.RotationFinished:
        """Sign with only the newest secret."""
        return await self._ask(calls.finish_rotation(subscription_id))

    async def test_subscription(self, subscription_id: str) -> types.Trial:
        """Deliver a test event now, and return how the endpoint answered it."""
        return await self._ask(calls.test_subscription(subscription_id))

    async def match(self, subscription_id: str, event: Event) -> types.Match:
        """Return whether a subscription wants an event, which is not published."""
        return await self._ask(calls.match(subscription_id, event))

    async def create_job(self, **options: Unpack[JobOptions]) -> types.JobReceipt:
        """Create a job: one delivery of a payload to a URL."""
        return await self._ask(calls.create_job(options))

    async def jobs(self, **which: Unpack[JobSearch]) -> AsyncIterator[types.JobView]:
        """Yield the matching jobs, the newest first, fetching page after page as needed."""
        async for page in self._pages(lambda cursor: calls.jobs(which, cursor)):
            for job in page.jobs:
                yield job

    async def job_page(self, limit: int, cursor: str | None = None, **which: Unpack[JobSearch]) -> types.JobList:
        """Return one page of the matching jobs, the newest first, and the cursor of the next page."""
        return await self._ask(calls.jobs(which, cursor, limit))

    async def job(self, job_id: str) -> types.JobView:
        """Return one job, with its payload."""
        return await self._ask(calls.job(job_id))

    async def attempts(self, job_id: str) -> list[types.AttemptView]:
        """Return the deliveries of a job, the first one first."""
        pages = self._pages(lambda cursor: calls.attempts(job_id, cursor))
        return [attempt async for page in pages for attempt in page.attempts]

    async def retry(self, *job_ids: str) -> list[str]:
        """Retry jobs in ERROR: all of them or none."""
        return (await self._ask(calls.decide("retry", job_ids))).ids

    async def retry_group(self, group_key: str) -> list[str]:
        """Retry a group's jobs in ERROR, in order, the first 1,000 of them."""
        return (await self._ask(calls.retry_group(group_key))).ids

    async def cancel(self, *job_ids: str) -> list[str]:
        """Cancel jobs that no delivery has started for: all of them or none."""
        return (await self._ask(calls.decide("cancel", job_ids))).ids

    async def ignore(self, *job_ids: str) -> list[str]:
        """Give up jobs in ERROR, so that the jobs they block move on: all of them or none."""
        return (await self._ask(calls.decide("ignore", job_ids))).ids

    async def held_groups(self) -> list[types.HeldGroupView]:
        """Return the groups that wait for a failed job, by key."""
        return [group async for page in self._pages(calls.held_groups) for group in page.groups]

    async def lanes(self, key: str) -> list[types.LaneView]:
        """Return the lanes of a key, or of a whole group key: what is unfinished, and what holds it up."""
        pages = self._pages(lambda cursor: calls.lanes(key, cursor))
        return [lane async for page in pages for lane in page.lanes]

    async def health(self) -> types.HealthReport:
        """Return the health of everything, with reasons and what to do."""
        return await self._ask(calls.health())

    async def pools(self) -> list[types.PoolView]:
        """Return all pools, by code."""
        return [pool async for page in self._pages(calls.pools) for pool in page.pools]

    async def put_pool(self, code: str, concurrency: int, rate_limit_per_minute: int | None = None) -> types.PoolView:
        """Create a pool, or change it."""
        return await self._ask(calls.put_pool(code, types.PoolBody(concurrency, rate_limit_per_minute)))

    async def delete_pool(self, code: str) -> types.PoolView:
        """Remove a pool."""
        return await self._ask(calls.delete_pool(code))

    async def feeds(self) -> list[types.FeedView]:
        """Return the topics that feed events, by name."""
        return (await self._ask(calls.feeds())).feeds

    async def feed(
        self, topic: str, *, type: str | None = None, type_attribute: str | None = None, tenant: str | None = None
    ) -> types.FeedView:
        """Let the messages of a Pub/Sub topic become events from now on."""
        return await self._ask(calls.feed(topic, types.FeedBody(type, type_attribute, tenant)))

    async def unfeed(self, topic: str) -> types.FeedView:
        """Let a topic feed no more events."""
        return await self._ask(calls.unfeed(topic))

    async def event_types(self) -> list[types.EventTypeView]:
        """Return the catalogue of event types, by type."""
        return [each async for page in self._pages(calls.event_types) for each in page.event_types]

    async def event_type(self, name: str) -> types.EventTypeView:
        """Return an event type with its schemas and examples."""
        return await self._ask(calls.event_type(name))

    async def put_event_type(self, name: str, definition: types.EventTypeBody) -> types.EventTypeView:
        """Set an event type, whole."""
        return await self._ask(calls.put_event_type(name, definition))

    async def delete_event_type(self, name: str) -> types.EventTypeView:
        """Delete an event type; return it as it was."""
        return await self._ask(calls.delete_event_type(name))

    async def check_data(self, name: str, data: object, version: str | None = None) -> types.DataCheck:
        """Compare data with the schema of an event type, of a version or of the newest."""
        return await self._ask(calls.check_data(name, data, version))

    async def asyncapi(self) -> types.JsonSchema:
        """Return the AsyncAPI document of the catalogue of event types."""
        return await self._ask(calls.asyncapi())

    async def create_portal_link(
        self, tenant: str, *, subscription_id: str | None = None, hours: float = 24
    ) -> types.PortalLink:
        """Create a link to the customers' portal, for a tenant or one of its subscriptions."""
        body = types.NewPortalLink(tenant=tenant, subscription_id=subscription_id, hours=hours)
        return await self._ask(calls.create_portal_link(body))

    async def revoke_portal_links(self, tenant: str) -> types.PortalLinksRevoked:
        """Revoke all links of a tenant, at once."""
        return await self._ask(calls.revoke_portal_links(tenant))

    async def change_page(self, limit: int, cursor: str | None = None) -> types.ChangeList:
        """Return one page of changes made through the API, the newest first, and the cursor of the next page."""
        return await self._ask(calls.changes(cursor, limit))

    async def _pages(self, call: Callable[[str | None], ApiCall[P]]) -> AsyncIterator[P]:
        page = await self._ask(call(None))
        yield page
        while page.cursor is not None:
            page = await self._ask(call(page.cursor))
            yield page


class _Connections:
    """Makes calls; any number of tasks may share it."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._settings = own_part_settings(timeout_s, MAX_ANSWER_BYTES)
        # Created by the first call: the client may be created before there is an event loop.
        self._http: HttpClient | None = None

    async def ask(self, call: ApiCall[A]) -> A:
        """Return the answer to a call; repeat the call if the connection breaks and that does no harm."""
        for pause_s in REPEAT_AFTER_S if call.repeatable else ():
            try:
                return await self._exchange(call)
            except (AnswerTimedOut, ConnectTimedOut) as error:
                raise self._endpoint.no_answer(call, error.message) from error
            except DeliveryFailed:
                await pause(pause_s)
        try:
            return await self._exchange(call)
        except DeliveryFailed as error:
            sent = not isinstance(error, ConnectFailed)
            raise self._endpoint.no_answer(call, error.message, sent=sent) from error

    async def close(self) -> None:
        """Close the connections; the next call connects again."""
        if self._http is not None:
            self._http.close()
            self._http = None

    async def _exchange(self, call: ApiCall[A]) -> A:
        if self._http is None:
            self._http = HttpClient(AnyAddress(), self._settings)
        endpoint = self._endpoint
        headers = tuple((name.lower(), value) for name, value in endpoint.headers(call.body).items())
        head = head_with(endpoint.origin + endpoint.base_path + call.path, headers, call.method)
        answer = await self._http.send(head, call.body or b"", repeatable=call.repeatable)
        return endpoint.read(call, answer.status, answer.body)
