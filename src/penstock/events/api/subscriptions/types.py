"""Converts the API's subscription requests to subscriptions, and subscriptions to the API's views."""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from penstock.client.types import NewSubscription, SubscriptionChange, SubscriptionView
from penstock.delivery import SEALED, Undeliverable, checked_headers, parse_target
from penstock.domain.errors import InvalidArgument
from penstock.domain.matching import EventFilter
from penstock.domain.message import NO_ATTRIBUTES
from penstock.domain.retry import DEFAULT_RETRY_SCHEDULE, RetrySchedule
from penstock.domain.signing import method_of
from penstock.domain.subscription import MOST_CODE_CHARS, Subscription, is_pool_code
from penstock.events.api.subscriptions.credentials import (
    certificate_view,
    check_credentials,
    oauth2_view,
    stored_certificate,
    stored_oauth2,
)
from penstock.events.process import MESSAGE_PREFIXES, check_message_target
from penstock.ops.telemetry import MASK


def new_subscription(body: NewSubscription, subscription_id: str, secret: str, now_ms: int) -> Subscription:
    """Return the requested subscription; InvalidArgument says what is wrong with it."""
    method = method_of(secret)
    if body.signature not in {None, method}:
        raise InvalidArgument(f"the secret signs with {method}, and the signature is to be {body.signature}")
    subscription = Subscription(
        id=subscription_id,
        name=body.name,
        pattern=body.pattern,
        target=checked_target(body.target),
        filter=EventFilter(tuple(body.filter), body.filter_expression.strip()),
        secrets=(secret,),
        pool=_checked_pool(body.pool),
        mode=body.mode,
        unkeyed=body.unkeyed,
        high_priority=body.high_priority,
        retry=DEFAULT_RETRY_SCHEDULE if body.retry_delays_s is None else RetrySchedule(tuple(body.retry_delays_s)),
        timeout_s=body.timeout_s,
        headers=unsealed_headers(body.headers) or NO_ATTRIBUTES,
        dead_letter_topic=_checked_dead_letters(body.dead_letter_topic),
        body=body.body,
        signature=method,
        tenant=body.tenant or "",
        oauth2=stored_oauth2(body.oauth2),
        client_certificate=stored_certificate(body.client_certificate, now_ms),
    )
    return check_credentials(subscription)


def changed_subscription(subscription: Subscription, change: SubscriptionChange, now_ms: int) -> Subscription:
    """Return the subscription with a change applied; InvalidArgument says what is wrong with it."""
    given = {name: value for name in change.__struct_fields__ if (value := getattr(change, name)) is not UNSET}
    if "pool" in given:
        given["pool"] = _checked_pool(given["pool"])
    if "target" in given:
        given["target"] = checked_target(given["target"])
    if "dead_letter_topic" in given:
        given["dead_letter_topic"] = _checked_dead_letters(given["dead_letter_topic"])
    if "filter" in given or "filter_expression" in given:
        conditions = given.get("filter", subscription.filter.conditions)
        expression = given.pop("filter_expression", subscription.filter.expression)
        given["filter"] = EventFilter(tuple(conditions), expression.strip())
    if "retry_delays_s" in given:
        given["retry"] = RetrySchedule(tuple(given.pop("retry_delays_s")))
    if "headers" in given:
        given["headers"] = _unmasked(unsealed_headers(given["headers"]), subscription.headers)
    if "oauth2" in given:
        given["oauth2"] = stored_oauth2(given["oauth2"], subscription.oauth2)
    if "client_certificate" in given:
        given["client_certificate"] = stored_certificate(given["client_certificate"], now_ms)
    return check_credentials(msgspec.structs.replace(subscription, **given))


def subscription_view(subscription: Subscription) -> SubscriptionView:
    """Return the API's view of a subscription."""
    return SubscriptionView(
        id=subscription.id,
        name=subscription.name,
        pattern=subscription.pattern,
        target=subscription.target,
        filter=subscription.filter.conditions,
        filter_expression=subscription.filter.expression,
        pool=subscription.pool_code,
        own_pool=subscription.pool is None,
        mode=subscription.mode,
        unkeyed=subscription.unkeyed,
        high_priority=subscription.high_priority,
        retry_delays_s=subscription.retry.delays_s,
        timeout_s=subscription.timeout_s,
        headers=masked_headers(subscription.headers),
        paused=subscription.paused,
        dead_letter_topic=subscription.dead_letter_topic,
        body=subscription.body,
        signature=subscription.signature,
        tenant=subscription.tenant,
        secrets=len(subscription.secrets),
        oauth2=oauth2_view(subscription.oauth2),
        client_certificate=certificate_view(subscription.client_certificate),
    )


def masked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the names of headers; their values, which may be credentials, are shown to no one."""
    return dict.fromkeys(headers, MASK)


def unsealed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return a user's headers, checked; none may look encrypted."""
    if any(value.startswith(SEALED) for value in headers.values()):
        raise InvalidArgument(f"the value of a header must not begin with {SEALED!r}, as encrypted ones do")
    return checked_headers(headers)


def _unmasked(given: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """Return the given headers; a mask, as a reader of the view sends it back, stands for the stored value."""
    return {name: stored.get(name, value) if value == MASK else value for name, value in given.items()}


def _checked_pool(code: str | None) -> str | None:
    if code is not None and not is_pool_code(code):
        raise InvalidArgument(f"a pool's code has 1 to {MOST_CODE_CHARS} printable characters, not {code[:100]!r}")
    return code


def _checked_dead_letters(place: str | None) -> str | None:
    if place is not None and place.startswith(MESSAGE_PREFIXES):
        check_message_target(place)
    return place


def checked_target(url: str) -> str:
    """Return a topic, a queue or a URL to deliver to; whether it may be reached is checked at delivery."""
    if url.startswith(MESSAGE_PREFIXES):
        check_message_target(url)
        return url
    try:
        parse_target(url)
    except Undeliverable as error:
        # Without the URL: it may carry a secret.
        raise InvalidArgument(f"the target is not a URL to deliver to: {error.message.partition(': ')[2]}") from error
    return url
