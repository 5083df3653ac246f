"""Subscriptions as callers give them, and as the API shows them.

The URLs that deliveries go to, checked when they are given.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.delivery.errors import Undeliverable
from penstock.delivery.http.request import parse_target
from penstock.delivery.webhook.request import checked_headers
from penstock.domain.errors import InvalidArgument
from penstock.domain.matching import Condition, EventFilter
from penstock.domain.message import NO_ATTRIBUTES
from penstock.domain.pointer import DispatchMode
from penstock.domain.retry import DEFAULT_RETRY_SCHEDULE, RetrySchedule
from penstock.domain.signing import key_of
from penstock.domain.subscription import DEFAULT_DISPATCH_POOL, DEFAULT_TIMEOUT_S, Subscription
from penstock.events.api.fields import Name, Text


def checked_target(url: str) -> str:
    """A URL that a request can be made from; whether it may be reached is found out when it is."""
    try:
        parse_target(url)
    except Undeliverable as error:
        # Without the URL: it may carry a secret.
        raise InvalidArgument(f"the target is no URL to deliver to: {error.message.partition(': ')[2]}") from error
    return url


LONGEST_TIMEOUT_S = 600
_WEEK_S = 7 * 24 * 60 * 60

Filter = Annotated[list[Condition], Meta(max_length=50)]
RetryDelays = Annotated[list[Annotated[float, Meta(ge=0, le=_WEEK_S)]], Meta(max_length=50)]
Timeout = Annotated[float, Meta(ge=0.1, le=LONGEST_TIMEOUT_S)]


class NewSubscription(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A subscription to be made. Without a secret (`whsec_` and base64) one is made."""

    name: Name
    pattern: Name
    target: Text
    filter: Filter = msgspec.field(default_factory=list)
    secret: Text | None = None
    pool: Name = DEFAULT_DISPATCH_POOL
    mode: DispatchMode = DispatchMode.BLOCK_ON_ERROR
    retry_delays_s: RetryDelays | None = None
    timeout_s: Timeout = DEFAULT_TIMEOUT_S
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    dead_letter_topic: Name | None = None
    tenant: Name | None = None


class SubscriptionChange(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What shall be different; a dead-letter topic of null takes it away."""

    name: Name | UnsetType = UNSET
    pattern: Name | UnsetType = UNSET
    target: Text | UnsetType = UNSET
    filter: Filter | UnsetType = UNSET
    pool: Name | UnsetType = UNSET
    mode: DispatchMode | UnsetType = UNSET
    retry_delays_s: RetryDelays | UnsetType = UNSET
    timeout_s: Timeout | UnsetType = UNSET
    headers: Mapping[str, str] | UnsetType = UNSET
    dead_letter_topic: Name | UnsetType | None = UNSET


class SubscriptionView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A subscription, without its secrets."""

    id: str
    name: str
    pattern: str
    target: str
    filter: tuple[Condition, ...]
    pool: str
    mode: DispatchMode
    retry_delays_s: tuple[float, ...]
    timeout_s: float
    headers: Mapping[str, str]
    paused: bool
    dead_letter_topic: str | None
    tenant: str
    secrets: int
    """How many secrets sign its deliveries: two while one replaces the other."""


def new_subscription(body: NewSubscription, subscription_id: str, secret: str) -> Subscription:
    """The subscription that was asked for; InvalidArgument says what is wrong with it."""
    key_of(secret)
    return Subscription(
        id=subscription_id,
        name=body.name,
        pattern=body.pattern,
        target=checked_target(body.target),
        filter=EventFilter(tuple(body.filter)),
        secrets=(secret,),
        pool=body.pool,
        mode=body.mode,
        retry=DEFAULT_RETRY_SCHEDULE if body.retry_delays_s is None else RetrySchedule(tuple(body.retry_delays_s)),
        timeout_s=body.timeout_s,
        headers=checked_headers(body.headers) or NO_ATTRIBUTES,
        dead_letter_topic=body.dead_letter_topic,
        tenant=body.tenant or "",
    )


def changed_subscription(subscription: Subscription, change: SubscriptionChange) -> Subscription:
    """The subscription as it shall be; InvalidArgument says what is wrong with that."""
    given = {name: value for name in change.__struct_fields__ if (value := getattr(change, name)) is not UNSET}
    if "target" in given:
        given["target"] = checked_target(given["target"])
    if "filter" in given:
        given["filter"] = EventFilter(tuple(given["filter"]))
    if "retry_delays_s" in given:
        given["retry"] = RetrySchedule(tuple(given.pop("retry_delays_s")))
    if "headers" in given:
        given["headers"] = checked_headers(given["headers"])
    return msgspec.structs.replace(subscription, **given)


def subscription_view(subscription: Subscription) -> SubscriptionView:
    """A subscription as it is shown."""
    return SubscriptionView(
        id=subscription.id,
        name=subscription.name,
        pattern=subscription.pattern,
        target=subscription.target,
        filter=subscription.filter.conditions,
        pool=subscription.pool,
        mode=subscription.mode,
        retry_delays_s=subscription.retry.delays_s,
        timeout_s=subscription.timeout_s,
        headers=dict(subscription.headers),
        paused=subscription.paused,
        dead_letter_topic=subscription.dead_letter_topic,
        tenant=subscription.tenant,
        secrets=len(subscription.secrets),
    )
