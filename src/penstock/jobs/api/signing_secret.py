"""`/api/v1/subscriptions/{id}/rotate-secret` and `/finish-rotation`: a new secret, beside the old one for a while."""

from base64 import b64encode

import msgspec

from penstock.domain.signing import SECRET_PREFIX, key_of
from penstock.domain.subscription import Subscription
from penstock.edge.chance import random_bytes
from penstock.http.api.query import NoQuery
from penstock.http.api.routes import AnyRoute, Call, NoBody, Route
from penstock.jobs.api.fields import SMALL_BODY_BYTES, Text, checked_id
from penstock.jobs.errors import SubscriptionNotFound
from penstock.jobs.repository import JobRepository

_KEY_BYTES = 32


def new_secret() -> str:
    """A secret to sign with, in the form of Standard Webhooks."""
    return SECRET_PREFIX + b64encode(random_bytes(_KEY_BYTES)).decode()


class Rotation(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How to replace a secret; the one that was newest so far goes on signing beside it unless it is dropped."""

    secret: Text | None = None
    keep_previous: bool = True


class Rotated(msgspec.Struct, frozen=True):
    """The new secret, shown this once, and how many secrets sign now."""

    secret: str
    secrets: int


class RotationFinished(msgspec.Struct, frozen=True):
    """How many secrets sign now: the newest alone."""

    secrets: int


class SigningSecretRoutes:
    """The routes that replace secrets."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository

    def routes(self) -> tuple[AnyRoute, ...]:
        """What is served."""
        return (
            Route(
                method="POST",
                path="/api/v1/subscriptions/{id}/rotate-secret",
                summary="Sign with a new secret, and with the previous one too unless told otherwise.",
                answer=Rotated,
                body=Rotation,
                max_body_bytes=SMALL_BODY_BYTES,
                handler=self._rotate,
            ),
            Route(
                method="POST",
                path="/api/v1/subscriptions/{id}/finish-rotation",
                summary="Sign with the newest secret alone.",
                answer=RotationFinished,
                handler=self._finish,
            ),
        )

    async def _rotate(self, call: Call[NoQuery, Rotation]) -> Rotated:
        subscription = await self._subscription(call.path["id"])
        secret = call.body.secret or new_secret()
        key_of(secret)
        kept = subscription.secrets[:1] if call.body.keep_previous else ()
        secrets = (secret, *(each for each in kept if each != secret))
        await self._repository.change_subscription(msgspec.structs.replace(subscription, secrets=secrets))
        return Rotated(secret, len(secrets))

    async def _finish(self, call: Call[NoQuery, NoBody]) -> RotationFinished:
        subscription = await self._subscription(call.path["id"])
        secrets = subscription.secrets[:1]
        await self._repository.change_subscription(msgspec.structs.replace(subscription, secrets=secrets))
        return RotationFinished(len(secrets))

    async def _subscription(self, subscription_id: str) -> Subscription:
        return await self._repository.get_subscription(checked_id(subscription_id, SubscriptionNotFound))
