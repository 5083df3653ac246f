"""Every request of the clients as a value: what is sent, what the answer is, whether it may be repeated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypedDict, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Raw

from penstock.client import types
from penstock.client.event import Event, encode_event, json_of
from penstock.domain.errors import AlreadyExists, FailedPrecondition, PenstockError
from penstock.domain.job_state import JobStatus
from penstock.domain.matching import Condition
from penstock.domain.pointer import DispatchMode
from penstock.domain.signing import SigningMethod
from penstock.domain.subscription import BodyFormat, UnkeyedOrder

A = TypeVar("A")

_EVENTS, _JOBS, _POOLS = "/api/v1/events", "/api/v1/jobs", "/api/v1/pools"
_SUBSCRIPTIONS, _CHANGES, _GROUPS = "/api/v1/subscriptions", "/api/v1/changes", "/api/v1/groups"
_PORTAL_LINKS = "/api/v1/portal-links"
_FEEDS, _EVENT_TYPES = "/api/v1/feeds", "/api/v1/event-types"


@dataclass(frozen=True)
class ApiCall(Generic[A]):
    """A request. Repeating a `repeatable` one changes nothing."""

    method: str
    path: str
    answer: type[A]
    body: bytes | None = None
    repeatable: bool = False
    conflict: type[PenstockError] = FailedPrecondition
    """The error that status 409 stands for."""


class Page(Protocol):
    """A page of a list; the cursor of the last one is None."""

    @property
    def cursor(self) -> str | None:
        """Return where the next page begins."""
        ...


class SubscriptionSettings(TypedDict, total=False):
    """Options of a new subscription besides its name, pattern and target."""

    filter: Sequence[Condition]
    filter_expression: str
    secret: str
    pool: str | None
    mode: DispatchMode
    unkeyed: UnkeyedOrder
    high_priority: bool
    retry_delays_s: Sequence[float]
    timeout_s: float
    headers: Mapping[str, str]
    dead_letter_topic: str
    body: BodyFormat
    signature: SigningMethod
    tenant: str
    oauth2: types.OAuth2
    client_certificate: types.ClientCertificate


class SubscriptionChanges(TypedDict, total=False):
    """What can be changed in a subscription; None removes a dead-letter topic, OAuth2 or a certificate."""

    name: str
    pattern: str
    target: str
    filter: Sequence[Condition]
    filter_expression: str
    pool: str | None
    mode: DispatchMode
    unkeyed: UnkeyedOrder
    high_priority: bool
    retry_delays_s: Sequence[float]
    timeout_s: float
    headers: Mapping[str, str]
    dead_letter_topic: str | None
    body: BodyFormat
    oauth2: types.OAuth2 | None
    client_certificate: types.ClientCertificate | None


class JobOptions(TypedDict, total=False):
    """Options of a new job; it requires a target, or a subscription, whose target it then gets.

    `payload` is any JSON, or bytes of the type `content_type`.
    """

    target: str
    subscription_id: str
    type: str
    tenant: str
    group: str
    sequence: int
    mode: DispatchMode
    high_priority: bool
    pool: str
    payload: object
    content_type: str
    headers: Mapping[str, str]
    scheduled_for: datetime
    expires_at: datetime
    idempotency_key: str


class JobSearch(TypedDict, total=False):
    """Which jobs to list. Archived ones are left out by default; None is the same as not given."""

    status: JobStatus | None
    subscription_id: str | None
    group_key: str | None
    key: str | None
    created_from_ms: int | None
    created_to_ms: int | None
    event_id: str | None
    tenant: str | None
    type: str | None
    payload: str | None
    archived: bool


def publish(body: bytes) -> ApiCall[types.EventReceipts]:
    """Publish events; repeating it changes nothing, as each event has its id."""
    return ApiCall("POST", _EVENTS, types.EventReceipts, body, repeatable=True)


def subscribe(name: str, pattern: str, target: str, options: SubscriptionSettings) -> ApiCall[types.SubscriptionMade]:
    """Create a subscription."""
    body = types.NewSubscription(name=name, pattern=pattern, target=target, **options)
    return ApiCall("POST", _SUBSCRIPTIONS, types.SubscriptionMade, _encode(body), conflict=AlreadyExists)


def subscriptions(cursor: str | None) -> ApiCall[types.SubscriptionList]:
    """List a page of subscriptions, starting at a cursor."""
    return _get(_SUBSCRIPTIONS, types.SubscriptionList, types.PageQuery(cursor=cursor))


def subscription(subscription_id: str) -> ApiCall[types.SubscriptionView]:
    """Return one subscription."""
    return _get(_one_subscription(subscription_id), types.SubscriptionView)


def update_subscription(subscription_id: str, changes: SubscriptionChanges) -> ApiCall[types.SubscriptionView]:
    """Change a subscription."""
    body = _encode(types.SubscriptionChange(**changes))
    path = _one_subscription(subscription_id)
    return ApiCall("PATCH", path, types.SubscriptionView, body, repeatable=True, conflict=AlreadyExists)


def pause(subscription_id: str) -> ApiCall[types.SubscriptionView]:
    """Stop the deliveries of a subscription for now."""
    return ApiCall("POST", f"{_one_subscription(subscription_id)}/pause", types.SubscriptionView, repeatable=True)


def resume(subscription_id: str) -> ApiCall[types.SubscriptionView]:
    """Resume the deliveries of a subscription."""
    return ApiCall("POST", f"{_one_subscription(subscription_id)}/resume", types.SubscriptionView, repeatable=True)


def unsubscribe(subscription_id: str) -> ApiCall[types.SubscriptionRemoved]:
    """Remove a subscription."""
    return ApiCall("DELETE", _one_subscription(subscription_id), types.SubscriptionRemoved)


def rotate_secret(subscription_id: str, rotation: types.Rotation) -> ApiCall[types.Rotated]:
    """Sign with a new secret."""
    return ApiCall("POST", f"{_one_subscription(subscription_id)}/rotate-secret", types.Rotated, _encode(rotation))


def public_keys(subscription_id: str) -> ApiCall[types.PublicKeys]:
    """Return the keys that verify Ed25519 signatures."""
    return _get(f"{_one_subscription(subscription_id)}/public-keys", types.PublicKeys)


def finish_rotation(subscription_id: str) -> ApiCall[types.RotationFinished]:
    """Sign with only the newest secret."""
    path = f"{_one_subscription(subscription_id)}/finish-rotation"
    return ApiCall("POST", path, types.RotationFinished, repeatable=True)


def test_subscription(subscription_id: str) -> ApiCall[types.Trial]:
    """Deliver a test event."""
    return ApiCall("POST", f"{_one_subscription(subscription_id)}/test", types.Trial)


def match(subscription_id: str, event: Event) -> ApiCall[types.Match]:
    """Ask whether a subscription wants an event."""
    path = f"{_one_subscription(subscription_id)}/match"
    return ApiCall("POST", path, types.Match, encode_event(event), repeatable=True)


def create_job(options: JobOptions) -> ApiCall[types.JobReceipt]:
    """Create a job; with an idempotency key it is created once, however often it is sent."""
    payload = options.get("payload")
    named = {name: value for name, value in options.items() if name != "payload"}
    body: types.NewJobBody = msgspec.structs.replace(
        types.NewJobBody(
            payload=UNSET if isinstance(payload, bytes) else json_of(payload),
            payload_base64=payload if isinstance(payload, bytes) else None,
        ),
        **named,
    )
    return ApiCall("POST", _JOBS, types.JobReceipt, _encode(body), repeatable="idempotency_key" in options)


def jobs(which: JobSearch, cursor: str | None, limit: int | None = None) -> ApiCall[types.JobList]:
    """List a page of jobs, starting at a cursor."""
    query = types.JobQuery(**which, cursor=cursor)
    return _get(_JOBS, types.JobList, query if limit is None else msgspec.structs.replace(query, limit=limit))


def job(job_id: str) -> ApiCall[types.JobView]:
    """Return one job."""
    return _get(f"{_JOBS}/{_part(job_id)}", types.JobView)


def attempts(job_id: str, cursor: str | None) -> ApiCall[types.AttemptList]:
    """List a page of the deliveries of a job, starting at a cursor."""
    return _get(f"{_JOBS}/{_part(job_id)}/attempts", types.AttemptList, types.PageQuery(cursor=cursor))


def decide(verb: str, job_ids: Sequence[str]) -> ApiCall[types.Decided]:
    """Retry, cancel or ignore jobs: all of them or none."""
    return ApiCall("POST", f"{_JOBS}/{verb}", types.Decided, _encode(types.JobIds(job_ids)))


def retry_group(group_key: str) -> ApiCall[types.Decided]:
    """Retry the jobs of a group that are in ERROR."""
    return ApiCall("POST", f"{_JOBS}/retry-group", types.Decided, _encode(types.GroupToRetry(group_key)))


def held_groups(cursor: str | None) -> ApiCall[types.HeldGroupList]:
    """List a page of groups that wait for a failed job, starting at a cursor."""
    return _get(f"{_GROUPS}/held", types.HeldGroupList, types.HeldQuery(limit=1000, cursor=cursor))


def lanes(key: str, cursor: str | None) -> ApiCall[types.LaneList]:
    """List a page of the lanes of a key, starting at a cursor."""
    return _get(f"{_GROUPS}/lanes", types.LaneList, types.LaneQuery(key, cursor))


def health() -> ApiCall[types.HealthReport]:
    """Return the health of everything."""
    return _get("/health", types.HealthReport)


def pools(cursor: str | None) -> ApiCall[types.PoolList]:
    """List a page of pools, starting at a cursor."""
    return _get(_POOLS, types.PoolList, types.PageQuery(cursor=cursor))


def put_pool(code: str, pool: types.PoolBody) -> ApiCall[types.PoolView]:
    """Create a pool, or change it."""
    return ApiCall("PUT", f"{_POOLS}/{_part(code)}", types.PoolView, _encode(pool), repeatable=True)


def delete_pool(code: str) -> ApiCall[types.PoolView]:
    """Remove a pool."""
    return ApiCall("DELETE", f"{_POOLS}/{_part(code)}", types.PoolView)


def feeds() -> ApiCall[types.FeedList]:
    """List the topics that feed events."""
    return _get(_FEEDS, types.FeedList)


def feed(topic: str, body: types.FeedBody) -> ApiCall[types.FeedView]:
    """Let a topic feed events."""
    return ApiCall("PUT", f"{_FEEDS}/{_part(topic)}", types.FeedView, _encode(body), repeatable=True)


def unfeed(topic: str) -> ApiCall[types.FeedView]:
    """Let a topic feed no more events."""
    return ApiCall("DELETE", f"{_FEEDS}/{_part(topic)}", types.FeedView)


def event_types(cursor: str | None) -> ApiCall[types.EventTypeList]:
    """List a page of the catalogue of event types."""
    return _get(_EVENT_TYPES, types.EventTypeList, types.PageQuery(cursor=cursor))


def event_type(name: str) -> ApiCall[types.EventTypeView]:
    """Get an event type."""
    return _get(f"{_EVENT_TYPES}/{_part(name)}", types.EventTypeView)


def put_event_type(name: str, body: types.EventTypeBody) -> ApiCall[types.EventTypeView]:
    """Set an event type."""
    path = f"{_EVENT_TYPES}/{_part(name)}"
    return ApiCall("PUT", path, types.EventTypeView, _encode(body), repeatable=True)


def delete_event_type(name: str) -> ApiCall[types.EventTypeView]:
    """Delete an event type."""
    return ApiCall("DELETE", f"{_EVENT_TYPES}/{_part(name)}", types.EventTypeView)


def check_data(name: str, data: object, version: str | None) -> ApiCall[types.DataCheck]:
    """Compare data with the schema of an event type."""
    given = data if isinstance(data, Raw) else Raw(msgspec.json.encode(data))
    body = types.DataToCheck(given, UNSET if version is None else version)
    return ApiCall("POST", f"{_EVENT_TYPES}/{_part(name)}/validate", types.DataCheck, _encode(body), repeatable=True)


def asyncapi() -> ApiCall[types.JsonSchema]:
    """Get the AsyncAPI document of the catalogue."""
    return _get("/asyncapi.json", types.JsonSchema)


def create_portal_link(body: types.NewPortalLink) -> ApiCall[types.PortalLink]:
    """Create a link to the customers' portal."""
    return ApiCall("POST", _PORTAL_LINKS, types.PortalLink, _encode(body))


def revoke_portal_links(tenant: str) -> ApiCall[types.PortalLinksRevoked]:
    """Revoke all links of a tenant."""
    return ApiCall("DELETE", f"{_PORTAL_LINKS}/{_part(tenant)}", types.PortalLinksRevoked, repeatable=True)


def changes(cursor: str | None, limit: int) -> ApiCall[types.ChangeList]:
    """List a page of changes made through the API, starting at a cursor."""
    return _get(_CHANGES, types.ChangeList, types.ChangeQuery(limit, cursor))


def _get(path: str, answer: type[A], query: msgspec.Struct | None = None) -> ApiCall[A]:
    given = {} if query is None else _given(query)
    return ApiCall("GET", f"{path}?{urlencode(given)}" if given else path, answer, repeatable=True)


def _given(query: msgspec.Struct) -> dict[str, str]:
    """Return the query parameters that differ from their defaults, as the API reads them."""
    fields = msgspec.structs.fields(query)
    values = {field.encode_name: getattr(query, field.name) for field in fields}
    defaults = {field.encode_name: field.default for field in fields}
    return {name: _written(value) for name, value in values.items() if value != defaults[name]}


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _one_subscription(subscription_id: str) -> str:
    return f"{_SUBSCRIPTIONS}/{_part(subscription_id)}"


def _part(text: str) -> str:
    return quote(text, safe="")


_encode = msgspec.json.Encoder().encode
