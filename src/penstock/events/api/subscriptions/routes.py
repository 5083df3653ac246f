"""`/api/v1/subscriptions`: create, change, pause and delete subscriptions, and rotate their signing secrets."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import UNSET

from penstock.client.types import (
    MOST_AT_ONCE,
    NewSubscription,
    PageQuery,
    PublicKeys,
    Rotated,
    Rotation,
    RotationFinished,
    SubscriptionChange,
    SubscriptionList,
    SubscriptionMade,
    SubscriptionRemoved,
    SubscriptionView,
)
from penstock.delivery import SecretBox
from penstock.domain.errors import InvalidArgument
from penstock.domain.job_state import DEFAULT_CONCURRENCY
from penstock.domain.signing import KEY_BYTES, PRIVATE_PREFIX, SigningMethod, method_of, secret_of, verifier_of
from penstock.domain.subscription import Subscription
from penstock.edge.clock import Clock, wall_ms
from penstock.edge.randomness import random_bytes
from penstock.events.api.subscriptions.types import changed_subscription, new_subscription, subscription_view
from penstock.events.errors import UnknownSubscription
from penstock.events.fields import SMALL_BODY_BYTES, checked_id
from penstock.events.portal import covers
from penstock.events.store import JobRepository
from penstock.http.api import Call, NoBody, NoQuery, page_of, route

PATH = "/api/v1/subscriptions"
_ONE = f"{PATH}/{{id}}"

Refusal = Callable[[str], Awaitable[str | None]]
"""Says why deliveries never reach a target, or returns None."""


class SubscriptionRoutes:
    """The routes of subscriptions; `changed` is called after every change that may change their pools."""

    def __init__(
        self,
        repository: JobRepository,
        secret_box: SecretBox,
        new_id: Callable[[], str],
        clock: Clock,
        changed: Callable[[], None],
        refusal: Refusal,
    ) -> None:
        self._repository = repository
        self._secret_box = secret_box
        self._new_id = new_id
        self._clock = clock
        self._changed = changed
        self._refusal = refusal

    @route(
        "POST",
        PATH,
        summary="Create a subscription. From now on, matching events become jobs for its target.",
        max_body_bytes=SMALL_BODY_BYTES,
        refusals=(HTTPStatus.CONFLICT,),
    )
    async def _create(self, call: Call[NoQuery, NewSubscription]) -> SubscriptionMade:
        secret = call.body.secret or new_secret(call.body.signature)
        subscription = new_subscription(call.body, self._new_id(), secret, wall_ms(self._clock))
        await self._repository.add_subscription(self._secret_box.sealed(subscription))
        call.noted.update(id=subscription.id, name=subscription.name)
        self._changed()
        return SubscriptionMade(
            subscription_view(subscription), verifier_of(secret), await self._warnings(subscription)
        )

    async def _warnings(self, subscription: Subscription) -> list[str]:
        """Return what will not work as the subscription says, as far as it is known now."""
        found: list[str] = []
        if subscription.pool and subscription.pool not in {each.code for each in await self._repository.list_pools()}:
            limit = f"up to {DEFAULT_CONCURRENCY} deliveries at once"
            found.append(f"no pool {subscription.pool!r} exists: it gets {limit}; `penstock pools set` gives it limits")
        refused = await self._refusal(subscription.target)
        return found if refused is None else [*found, refused]

    @route("GET", PATH, summary="List subscriptions, the oldest first.")
    async def _list(self, call: Call[PageQuery, NoBody]) -> SubscriptionList:
        scope = call.caller.scope
        known = await self._repository.list_subscriptions()
        found = [each for each in known if scope is None or covers(scope, each)]
        page, cursor = page_of(found, lambda each: (each.id,), tuple[str], call.query.limit, call.query.cursor)
        return SubscriptionList([subscription_view(each) for each in page], cursor)

    @route("GET", _ONE, summary="Get a subscription.")
    async def _get(self, call: Call[NoQuery, NoBody]) -> SubscriptionView:
        return await self._view(_id(call.path))

    @route(
        "PATCH",
        _ONE,
        summary="Change a subscription. Existing jobs keep their target, mode and pool.",
        max_body_bytes=SMALL_BODY_BYTES,
        refusals=(HTTPStatus.CONFLICT,),
    )
    async def _change(self, call: Call[NoQuery, SubscriptionChange]) -> SubscriptionView:
        subscription = await self._named(call)
        if all(getattr(call.body, name) is UNSET for name in call.body.__struct_fields__):
            raise InvalidArgument("there is nothing to change: the body has no field")
        changed = changed_subscription(subscription, call.body, wall_ms(self._clock))
        await self._repository.change_subscription(self._secret_box.sealed(changed))
        self._changed()
        return subscription_view(changed)

    @route("POST", f"{_ONE}/pause", summary="Pause deliveries. Matching events still become jobs, which wait.")
    async def _pause(self, call: Call[NoQuery, NoBody]) -> SubscriptionView:
        subscription = await self._named(call)
        await self._repository.pause_subscription(subscription.id)
        return await self._view(subscription.id)

    @route("POST", f"{_ONE}/resume", summary="Resume deliveries, beginning with the jobs that waited.")
    async def _resume(self, call: Call[NoQuery, NoBody]) -> SubscriptionView:
        subscription = await self._named(call)
        await self._repository.resume_subscription(subscription.id)
        return await self._view(subscription.id)

    @route("DELETE", _ONE, summary="Delete a subscription, and cancel its jobs whose delivery has not begun.")
    async def _delete(self, call: Call[NoQuery, NoBody]) -> SubscriptionRemoved:
        subscription_id = (await self._named(call)).id
        # First, so that no event creates another job for it.
        await self._repository.delete_subscription(subscription_id)
        cancelled, now_ms = 0, self._clock.now_ms()
        while some := await self._repository.cancel_of_subscription(subscription_id, now_ms, MOST_AT_ONCE):
            cancelled += some
        self._changed()
        return SubscriptionRemoved(subscription_id, cancelled)

    async def _named(self, call: Call[Any, Any]) -> Subscription:
        return await named_subscription(self._repository, call)

    async def _view(self, subscription_id: str) -> SubscriptionView:
        return subscription_view(await self._repository.get_subscription(subscription_id))


class SigningSecretRoutes:
    """The routes that rotate signing secrets."""

    def __init__(self, repository: JobRepository, secret_box: SecretBox) -> None:
        self._repository = repository
        self._secret_box = secret_box

    @route(
        "POST",
        f"{_ONE}/rotate-secret",
        summary="Sign with a new secret, and also with the previous one unless `keepPrevious` is false.",
        max_body_bytes=SMALL_BODY_BYTES,
    )
    async def _rotate(self, call: Call[NoQuery, Rotation]) -> Rotated:
        subscription = await self._subscription(call)
        secret = call.body.secret or new_secret(call.body.signature or subscription.signature)
        method = method_of(secret)
        if call.body.signature not in {None, method}:
            raise InvalidArgument(f"the secret signs with {method}, and the signature is to be {call.body.signature}")
        kept = subscription.secrets[:1] if call.body.keep_previous else ()
        secrets = (secret, *(each for each in kept if each != secret))
        await self._change(msgspec.structs.replace(subscription, signature=method), secrets)
        return Rotated(verifier_of(secret), len(secrets))

    @route("GET", f"{_ONE}/public-keys", summary="Get the keys that receivers verify Ed25519 signatures with.")
    async def _public_keys(self, call: Call[NoQuery, NoBody]) -> PublicKeys:
        secrets = (await self._subscription(call)).secrets
        return PublicKeys([verifier_of(each) for each in secrets if each.startswith(PRIVATE_PREFIX)])

    @route("POST", f"{_ONE}/finish-rotation", summary="Sign with the newest secret only.")
    async def _finish(self, call: Call[NoQuery, NoBody]) -> RotationFinished:
        subscription = await self._subscription(call)
        secrets = subscription.secrets[:1]
        await self._change(subscription, secrets)
        return RotationFinished(len(secrets))

    async def _subscription(self, call: Call[Any, Any]) -> Subscription:
        return self._secret_box.opened(await named_subscription(self._repository, call))

    async def _change(self, subscription: Subscription, secrets: tuple[str, ...]) -> None:
        changed = msgspec.structs.replace(subscription, secrets=secrets)
        await self._repository.change_subscription(self._secret_box.sealed(changed))


async def named_subscription(repository: JobRepository, call: Call[Any, Any]) -> Subscription:
    """Return the subscription that a request is about, and note its name for the log of changes."""
    subscription = await repository.get_subscription(_id(call.path))
    call.noted["name"] = subscription.name
    return subscription


def _id(path: Mapping[str, str]) -> str:
    return checked_id(path["id"], UnknownSubscription)


def new_secret(method: SigningMethod | None) -> str:
    """Return a new signing secret, or private key, in the form of Standard Webhooks."""
    return secret_of(method or SigningMethod.HMAC, random_bytes(KEY_BYTES))
