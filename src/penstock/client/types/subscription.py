"""Subscriptions with their secrets and tests, pools, and the router's configuration in the API."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.client.types.credentials import ClientCertificate, ClientCertificateView, OAuth2, OAuth2View
from penstock.client.types.fields import Name, Text
from penstock.domain.job_state import DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT_S
from penstock.domain.matching import Condition
from penstock.domain.matching.expression import MOST_EXPRESSION_CHARS
from penstock.domain.pointer import DispatchMode
from penstock.domain.signing import SigningMethod
from penstock.domain.subscription import BodyFormat, UnkeyedOrder

LONGEST_TIMEOUT_S = 600
_WEEK_S = 7 * 24 * 60 * 60

Filter = Annotated[Sequence[Condition], Meta(max_length=50)]
FilterExpression = Annotated[str, Meta(max_length=MOST_EXPRESSION_CHARS)]
RetryDelays = Annotated[Sequence[Annotated[float, Meta(ge=0, le=_WEEK_S)]], Meta(max_length=50)]
Timeout = Annotated[float, Meta(ge=0.1, le=LONGEST_TIMEOUT_S)]


class NewSubscription(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A subscription to create.

    Without a secret (`whsec_` and base64), one is generated. Without a pool it has one of its own, which no other
    subscription slows down. Events without a key have no order unless `unkeyed` is `ordered`. Jobs of high priority go
    before the regular ones of their group. Events must meet all conditions of `filter` and the `filterExpression`, such
    as `data.total >= 100`; an empty one is met by all. A target is a URL, `topic:NAME` or `sqs:NAME`; a dead-letter
    topic is one of the last two, or the name of a topic.
    """

    name: Name
    pattern: Name
    target: Text
    filter: Filter = msgspec.field(default_factory=list)
    filter_expression: FilterExpression = ""
    secret: Text | None = None
    pool: Name | None = None
    mode: DispatchMode = DispatchMode.BLOCK_ON_ERROR
    unkeyed: UnkeyedOrder = UnkeyedOrder.NONE
    high_priority: bool = False
    retry_delays_s: RetryDelays | None = None
    timeout_s: Timeout = DEFAULT_TIMEOUT_S
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    dead_letter_topic: Name | None = None
    body: BodyFormat = BodyFormat.CLOUDEVENT
    signature: SigningMethod | None = None
    tenant: Name | None = None
    oauth2: OAuth2 | None = None
    client_certificate: ClientCertificate | None = None


class SubscriptionChange(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What to change; null removes a dead-letter topic, OAuth2 or a certificate; a pool of null is its own."""

    name: Name | UnsetType = UNSET
    pattern: Name | UnsetType = UNSET
    target: Text | UnsetType = UNSET
    filter: Filter | UnsetType = UNSET
    filter_expression: FilterExpression | UnsetType = UNSET
    pool: Name | UnsetType | None = UNSET
    mode: DispatchMode | UnsetType = UNSET
    unkeyed: UnkeyedOrder | UnsetType = UNSET
    high_priority: bool | UnsetType = UNSET
    retry_delays_s: RetryDelays | UnsetType = UNSET
    timeout_s: Timeout | UnsetType = UNSET
    headers: Mapping[str, str] | UnsetType = UNSET
    dead_letter_topic: Name | UnsetType | None = UNSET
    body: BodyFormat | UnsetType = UNSET
    oauth2: OAuth2 | UnsetType | None = UNSET
    client_certificate: ClientCertificate | UnsetType | None = UNSET


class SubscriptionView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A subscription, without its secrets."""

    id: str
    name: str
    pattern: str
    target: str
    filter: tuple[Condition, ...]
    filter_expression: str
    pool: str
    own_pool: bool
    """Whether the pool is the subscription's own, because it names none."""
    mode: DispatchMode
    unkeyed: UnkeyedOrder
    high_priority: bool
    retry_delays_s: tuple[float, ...]
    timeout_s: float
    headers: Mapping[str, str]
    """The names of its own headers, with their values masked; a change that sends the mask keeps the stored value."""
    paused: bool
    dead_letter_topic: str | None
    body: BodyFormat
    signature: SigningMethod
    tenant: str
    secrets: int
    """The number of secrets that sign its deliveries: two during a rotation."""
    oauth2: OAuth2View | None = None
    """Where its tokens come from, with the secret masked."""
    client_certificate: ClientCertificateView | None = None


class SubscriptionMade(msgspec.Struct, frozen=True):
    """A new subscription, what its receiver verifies with, and what will not work.

    A secret is shown only here. With the signature `ed25519` it is the public key, which `public-keys` shows again.
    """

    subscription: SubscriptionView
    secret: str
    warnings: list[str] = []


class SubscriptionList(msgspec.Struct, frozen=True):
    """Subscriptions, the oldest first. The cursor asks for the next page; it is null after the last."""

    subscriptions: list[SubscriptionView]
    cursor: str | None


class SubscriptionRemoved(msgspec.Struct, frozen=True, rename="camel"):
    """A deleted subscription, and the number of its jobs that were cancelled."""

    id: str
    cancelled_jobs: int


class Rotation(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How to replace a secret. The previous one keeps signing too, unless it is dropped."""

    secret: Text | None = None
    keep_previous: bool = True
    signature: SigningMethod | None = None
    """Of the new secret; else that of the previous one."""


class Rotated(msgspec.Struct, frozen=True):
    """The new secret, which is shown only here, or public key, and the number of secrets that sign now."""

    secret: str
    secrets: int


class PublicKeys(msgspec.Struct, frozen=True):
    """What receivers verify a subscription's Ed25519 signatures with, the newest first; two during a rotation."""

    keys: list[str]


class RotationFinished(msgspec.Struct, frozen=True):
    """The number of secrets that sign now: only the newest one."""

    secrets: int


class Trial(msgspec.Struct, frozen=True, rename="camel"):
    """The endpoint's answer to a test event."""

    delivered: bool
    status_code: int | None
    duration_ms: int
    response: str | None
    error: str | None


class Match(msgspec.Struct, frozen=True):
    """Whether a subscription wants an event, and why: its tenant, its pattern and its filter must match."""

    matches: bool
    tenant: bool
    pattern: bool
    filter: bool


class PoolBody(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The limits of a pool: concurrent deliveries, and deliveries per minute (null means no limit)."""

    concurrency: Annotated[int, Meta(ge=1, le=100_000)] = DEFAULT_CONCURRENCY
    rate_limit_per_minute: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None


class PoolView(msgspec.Struct, frozen=True, rename="camel"):
    """A pool."""

    code: str
    concurrency: int
    rate_limit_per_minute: int | None


class PoolList(msgspec.Struct, frozen=True):
    """Pools by code. The cursor asks for the next page; it is null after the last."""

    pools: list[PoolView]
    cursor: str | None


class PoolToServe(PoolView, frozen=True):
    """A pool that routers serve; `shared` if several subscriptions have it."""

    shared: bool = False


class QueueToConsume(msgspec.Struct, frozen=True, rename="camel"):
    """A queue that routers consume."""

    queue_name: str
    queue_uri: str
    connections: int = 1
    template: str | None = None
    """The URI of the queue whose settings it gets if it does not exist yet."""


class RouterConfigurationView(msgspec.Struct, frozen=True, rename="camel"):
    """The configuration in the format that routers read."""

    processing_pools: list[PoolToServe]
    queues: list[QueueToConsume]
