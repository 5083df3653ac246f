"""Tokens of the customers' portal: whose they are and until when, signed.

A token is `pt_CLAIMS.SIGNATURE`. The signature needs a secret of this installation, which the database does not have,
and a key of the tenant, which it does have: without either no token can be made, and a new key ends all tokens of the
tenant at once.
"""

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock, wall_ms
from penstock.edge.randomness import random_bytes
from penstock.events.store import JobRepository
from penstock.http.auth import Caller, CallerScope, Role
from penstock.http.problems import Refused

PREFIX = "pt_"
_FORM = re.compile(r"pt_([A-Za-z0-9_-]{1,2048})\.([A-Za-z0-9_-]{43})")
_KEY_BYTES = 32


class _Claims(msgspec.Struct, frozen=True, array_like=True):
    tenant: str
    subscription_id: str | None
    expires_s: int


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(_Claims).decode


class PortalTokens:
    """Makes tokens, and says who holds one."""

    def __init__(self, repository: JobRepository, secrets: Sequence[bytes], clock: Clock) -> None:
        self._repository = repository
        self._secrets = secrets
        self._clock = clock

    async def create(self, scope: CallerScope, lifetime_s: int) -> tuple[str, int]:
        """Return a token, and the second since the epoch at which it expires."""
        expires_s = wall_ms(self._clock) // SECOND_MS + lifetime_s
        claims = _text(_encode(_Claims(scope.tenant, scope.subscription_id, expires_s)))
        key = await self._repository.portal_key(scope.tenant, _text(random_bytes(_KEY_BYTES)))
        return f"{PREFIX}{claims}.{_signature(self._secrets[0], key, claims)}", expires_s

    async def revoke(self, tenant: str) -> None:
        """End all tokens of a tenant."""
        await self._repository.rotate_portal_key(tenant, _text(random_bytes(_KEY_BYTES)))

    async def caller(self, token: str) -> Caller:
        """Return who holds a token; Refused unless it is valid now."""
        found = await self._holder(token)
        if found is None:
            detail = "this link is not valid: it has expired or was revoked; ask for a new one"
            raise Refused(HTTPStatus.UNAUTHORIZED, detail, {"www-authenticate": "Bearer"})
        return found

    async def _holder(self, token: str) -> Caller | None:
        form = _FORM.fullmatch(token)
        if form is None:
            return None
        try:
            claims = _decode(urlsafe_b64decode(form[1] + "=" * (-len(form[1]) % 4)))
        except (ValueError, msgspec.DecodeError):
            return None
        # No tenant that was ever given a link has a NUL, which databases cannot look for.
        key = None if "\0" in claims.tenant else await self._repository.find_portal_key(claims.tenant)
        if key is None:
            return None
        # Every secret is tried, so that the time taken does not reveal which one matches.
        signed = sum(hmac.compare_digest(_signature(secret, key, form[1]), form[2]) for secret in self._secrets)
        if not signed or wall_ms(self._clock) // SECOND_MS >= claims.expires_s:
            return None
        scope = CallerScope(claims.tenant, claims.subscription_id)
        return Caller(f"portal of {claims.tenant}", Role.PORTAL, scope)


def _signature(secret: bytes, key: str, claims: str) -> str:
    return _text(hmac.digest(secret, f"penstock portal {key} {claims}".encode(), "sha256"))


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")
