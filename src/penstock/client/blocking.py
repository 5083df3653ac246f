"""The blocking client."""

from collections.abc import Callable, Iterable, Iterator
from threading import Event as Flag
from typing import Self, TypeVar, Unpack

from penstock.client import calls, types
from penstock.client.blocking_http import BROKEN, NOT_CONNECTED, BlockingHttp
from penstock.client.calls import A, ApiCall, JobOptions, JobSearch, Page, SubscriptionChanges, SubscriptionSettings
from penstock.client.endpoint import REPEAT_AFTER_S, Endpoint
from penstock.client.event import Event, encode_event, in_batches
from penstock.domain.signing import SigningMethod

DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_TIMEOUT_S = 30.0

P = TypeVar("P", bound=Page)


class Penstock:
    """Calls the API of a Penstock server. Use it in a `with` block, or close it; threads may share it."""

    def __init__(
        self, url: str = DEFAULT_URL, token: str | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self._connections = _Connections(Endpoint.parse(url, token), timeout_s)
        self._ask = self._connections.ask

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def publish(self, event: Event) -> types.EventReceipt:
        """Publish an event. Safe to repeat: an event with the same `source` and `id` is stored once."""
        return self._ask(calls.publish(encode_event(event))).events[0]

    def publish_all(self, events: Iterable[Event]) -> list[types.EventReceipt]:
        """Publish events in order, up to 1,000 per transaction. After an error the same list may be published again."""
        answers = (self._ask(calls.publish(body)) for body in in_batches(events))
        return [receipt for answer in answers for receipt in answer.events]

    def subscribe(
        self, name: str, pattern: str, target: str, **options: Unpack[SubscriptionSettings]
    ) -> types.SubscriptionMade:
        """Deliver events of a type such as `orders:**` to a URL. Only this answer contains the secret."""
        return self._ask(calls.subscribe(name, pattern, target, options))

    def subscriptions(self) -> list[types.SubscriptionView]:
        """Return all subscriptions, the oldest first."""
        return [each for page in self._pages(calls.subscriptions) for each in page.subscriptions]

    def subscription(self, subscription_id: str) -> types.SubscriptionView:
        """Return one subscription."""
        return self._ask(calls.subscription(subscription_id))

    def update_subscription(
        self, subscription_id: str, **changes: Unpack[SubscriptionChanges]
    ) -> types.SubscriptionView:
        """Change the given fields; a filter or headers are replaced as a whole."""
        return self._ask(calls.update_subscription(subscription_id, changes))

    def pause(self, subscription_id: str) -> types.SubscriptionView:
        """Stop deliveries for now; matching events wait."""
        return self._ask(calls.pause(subscription_id))

    def resume(self, subscription_id: str) -> types.SubscriptionView:
        """Deliver again, starting with the events that waited."""
        return self._ask(calls.resume(subscription_id))

    def unsubscribe(self, subscription_id: str) -> types.SubscriptionRemoved:
        """Remove a subscription and cancel its jobs that no delivery has started for."""
        return self._ask(calls.unsubscribe(subscription_id))

    def rotate_secret(
        self,
        subscription_id: str,
        *,
        secret: str | None = None,
        keep_previous: bool = True,
        signature: SigningMethod | None = None,
    ) -> types.Rotated:
        """Sign with a new secret, and with the previous one too until the rotation is finished."""
        return self._ask(calls.rotate_secret(subscription_id, types.Rotation(secret, keep_previous, signature)))

    def public_keys(self, subscription_id: str) -> list[str]:
        """Return what verifies a subscription's Ed25519 signatures, the newest first."""
        return (self._ask(calls.public_keys(subscription_id))).keys

    def finish_rotation(self, subscription_id: str) -> types.RotationFinished:
        """Sign with only the newest secret."""
        return self._ask(calls.finish_rotation(subscription_id))

    def test_subscription(self, subscription_id: str) -> types.Trial:
        """Deliver a test event now, and return how the endpoint answered it."""
        return self._ask(calls.test_subscription(subscription_id))

    def match(self, subscription_id: str, event: Event) -> types.Match:
        """Return whether a subscription wants an event, which is not published."""
        return self._ask(calls.match(subscription_id, event))

    def create_job(self, **options: Unpack[JobOptions]) -> types.JobReceipt:
        """Create a job: one delivery of a payload to a URL."""
        return self._ask(calls.create_job(options))

    def jobs(self, **which: Unpack[JobSearch]) -> Iterator[types.JobView]:
        """Yield the matching jobs, the newest first, fetching page after page as needed."""
        return (job for page in self._pages(lambda cursor: calls.jobs(which, cursor)) for job in page.jobs)

    def job_page(self, limit: int, cursor: str | None = None, **which: Unpack[JobSearch]) -> types.JobList:
        """Return one page of the matching jobs, the newest first, and the cursor of the next page."""
        return self._ask(calls.jobs(which, cursor, limit))

    def job(self, job_id: str) -> types.JobView:
        """Return one job, with its payload."""
        return self._ask(calls.job(job_id))

    def attempts(self, job_id: str) -> list[types.AttemptView]:
        """Return the deliveries of a job, the first one first."""
        pages = self._pages(lambda cursor: calls.attempts(job_id, cursor))
        return [attempt for page in pages for attempt in page.attempts]

    def retry(self, *job_ids: str) -> list[str]:
        """Retry jobs in ERROR: all of them or none."""
        return self._ask(calls.decide("retry", job_ids)).ids

    def retry_group(self, group_key: str) -> list[str]:
        """Retry a group's jobs in ERROR, in order, the first 1,000 of them."""
        return self._ask(calls.retry_group(group_key)).ids

    def cancel(self, *job_ids: str) -> list[str]:
        """Cancel jobs that no delivery has started for: all of them or none."""
        return self._ask(calls.decide("cancel", job_ids)).ids

    def ignore(self, *job_ids: str) -> list[str]:
        """Give up jobs in ERROR, so that the jobs they block move on: all of them or none."""
        return self._ask(calls.decide("ignore", job_ids)).ids

    def held_groups(self) -> list[types.HeldGroupView]:
        """Return the groups that wait for a failed job, by key."""
        return [group for page in self._pages(calls.held_groups) for group in page.groups]

    def lanes(self, key: str) -> list[types.LaneView]:
        """Return the lanes of a key, or of a whole group key: what is unfinished, and what holds it up."""
        pages = self._pages(lambda cursor: calls.lanes(key, cursor))
        return [lane for page in pages for lane in page.lanes]

    def health(self) -> types.HealthReport:
        """Return the health of everything, with reasons and what to do."""
        return self._ask(calls.health())

    def pools(self) -> list[types.PoolView]:
        """Return all pools, by code."""
        return [pool for page in self._pages(calls.pools) for pool in page.pools]

    def put_pool(self, code: str, concurrency: int, rate_limit_per_minute: int | None = None) -> types.PoolView:
        """Create a pool, or change it."""
        return self._ask(calls.put_pool(code, types.PoolBody(concurrency, rate_limit_per_minute)))

    def delete_pool(self, code: str) -> types.PoolView:
        """Remove a pool."""
        return self._ask(calls.delete_pool(code))

    def feeds(self) -> list[types.FeedView]:
        """Return the topics that feed events, by name."""
        return self._ask(calls.feeds()).feeds

    def feed(
        self, topic: str, *, type: str | None = None, type_attribute: str | None = None, tenant: str | None = None
    ) -> types.FeedView:
        """Let the messages of a Pub/Sub topic become events from now on."""
        return self._ask(calls.feed(topic, types.FeedBody(type, type_attribute, tenant)))

    def unfeed(self, topic: str) -> types.FeedView:
        """Let a topic feed no more events."""
        return self._ask(calls.unfeed(topic))

    def event_types(self) -> list[types.EventTypeView]:
        """Return the catalogue of event types, by type."""
        return [each for page in self._pages(calls.event_types) for each in page.event_types]

    def event_type(self, name: str) -> types.EventTypeView:
        """Return an event type with its schemas and examples."""
        return self._ask(calls.event_type(name))

    def put_event_type(self, name: str, definition: types.EventTypeBody) -> types.EventTypeView:
        """Set an event type, whole."""
        return self._ask(calls.put_event_type(name, definition))

    def delete_event_type(self, name: str) -> types.EventTypeView:
        """Delete an event type; return it as it was."""
        return self._ask(calls.delete_event_type(name))

    def check_data(self, name: str, data: object, version: str | None = None) -> types.DataCheck:
        """Compare data with the schema of an event type, of a version or of the newest."""
        return self._ask(calls.check_data(name, data, version))

    def asyncapi(self) -> types.JsonSchema:
        """Return the AsyncAPI document of the catalogue of event types."""
        return self._ask(calls.asyncapi())

    def create_portal_link(
        self, tenant: str, *, subscription_id: str | None = None, hours: float = 24
    ) -> types.PortalLink:
        """Create a link to the customers' portal, for a tenant or one of its subscriptions."""
        body = types.NewPortalLink(tenant=tenant, subscription_id=subscription_id, hours=hours)
        return self._ask(calls.create_portal_link(body))

    def revoke_portal_links(self, tenant: str) -> types.PortalLinksRevoked:
        """Revoke all links of a tenant, at once."""
        return self._ask(calls.revoke_portal_links(tenant))

    def change_page(self, limit: int, cursor: str | None = None) -> types.ChangeList:
        """Return one page of changes made through the API, the newest first, and the cursor of the next page."""
        return self._ask(calls.changes(cursor, limit))

    def _pages(self, call: Callable[[str | None], ApiCall[P]]) -> Iterator[P]:
        page = self._ask(call(None))
        yield page
        while page.cursor is not None:
            page = self._ask(call(page.cursor))
            yield page


class _Connections:
    """Makes calls; safe to share between threads."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._http = BlockingHttp(endpoint.host, endpoint.port, secure=endpoint.secure, timeout_s=timeout_s)
        self._closed = Flag()

    def ask(self, call: ApiCall[A]) -> A:
        """Return the answer to a call; repeat the call if the connection breaks and that does no harm."""
        for pause_s in REPEAT_AFTER_S if call.repeatable else ():
            try:
                return self._exchange(call)
            except TimeoutError as error:
                raise self._no_answer(call, error) from error
            except BROKEN:
                # Ends early if another thread closes the client.
                self._closed.wait(pause_s)
        try:
            return self._exchange(call)
        except BROKEN as error:
            raise self._no_answer(call, error) from error

    def close(self) -> None:
        """Close the connections; the next call connects again."""
        self._closed.set()
        self._http.close()

    def _exchange(self, call: ApiCall[A]) -> A:
        endpoint = self._endpoint
        answer = self._http.send(call.method, endpoint.base_path + call.path, call.body, endpoint.headers(call.body))
        return endpoint.read(call, answer.status, answer.body)

    def _no_answer(self, call: ApiCall[A], error: Exception) -> Exception:
        late = isinstance(error, TimeoutError)
        reason = f"no answer within {self._timeout_s:g} s" if late else str(error)
        return self._endpoint.no_answer(call, reason, sent=not isinstance(error, NOT_CONNECTED))
