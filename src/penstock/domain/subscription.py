"""A subscription: which events go to which target, and how; and a pool: the pace of deliveries."""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256

import msgspec

from penstock.domain.errors import InvalidArgument
from penstock.domain.job_state import DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT_S
from penstock.domain.matching import EventFilter, EventPattern
from penstock.domain.message import NO_ATTRIBUTES
from penstock.domain.pointer import DispatchMode
from penstock.domain.retry import DEFAULT_RETRY_SCHEDULE, RetrySchedule
from penstock.domain.signing import SigningMethod

MOST_CODE_CHARS = 256
_DIGEST_CHARS = 16


class UnkeyedOrder(StrEnum):
    """Whether events without a key wait for each other (EVENT-FANOUT-4)."""

    NONE = "none"
    ORDERED = "ordered"


class BodyFormat(StrEnum):
    """What the body of a delivery is."""

    CLOUDEVENT = "cloudevent"
    """The event as a JSON document."""
    BINARY = "binary"
    """The event's data alone; its attributes are headers, which no signature covers."""
    SLACK = "slack"
    """A message of Slack's incoming webhooks, which Mattermost and others take too: `{"text": "…"}`."""


class OAuth2Client(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks for the tokens of a subscription, and where: OAuth2's client credentials (RFC 6749, 4.4)."""

    token_url: str
    client_id: str
    client_secret: str
    scope: str = ""
    audience: str = ""

    def __repr__(self) -> str:
        # Without the secret, which must not appear in a log.
        return f"OAuth2Client({self.client_id!r} at {self.token_url!r})"


class CertificateWithKey(msgspec.Struct, frozen=True):
    """A client certificate with its chain, and its private key, both in PEM."""

    certificate: str
    private_key: str

    def __repr__(self) -> str:
        return "CertificateWithKey()"


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscriber's request; `secrets` has the newest first, and several during a rotation.

    Without a `pool` it has one of its own (SUB-2).
    """

    id: str
    name: str
    pattern: str
    target: str
    filter: EventFilter = EventFilter()
    secrets: tuple[str, ...] = ()
    pool: str | None = None
    mode: DispatchMode = DispatchMode.BLOCK_ON_ERROR
    unkeyed: UnkeyedOrder = UnkeyedOrder.NONE
    high_priority: bool = False
    retry: RetrySchedule = DEFAULT_RETRY_SCHEDULE
    timeout_s: float = DEFAULT_TIMEOUT_S
    headers: Mapping[str, str] = NO_ATTRIBUTES
    paused: bool = False
    dead_letter_topic: str | None = None
    body: BodyFormat = BodyFormat.CLOUDEVENT
    signature: SigningMethod = SigningMethod.HMAC
    """How the newest secret signs."""
    tenant: str = ""
    oauth2: OAuth2Client | None = None
    """Where the token that deliveries carry comes from."""
    client_certificate: CertificateWithKey | None = None
    """What deliveries show an endpoint that asks for a certificate."""

    def __post_init__(self) -> None:
        EventPattern.parse(self.pattern)
        if not self.name or not self.target:
            raise InvalidArgument(f"subscription {self.id} needs a name and a target URL")
        if self.timeout_s <= 0:
            raise InvalidArgument(f"the timeout of subscription {self.name!r} is {self.timeout_s} s: use more than 0")

    @property
    def pool_code(self) -> str:
        """The pool of its jobs: the one it names, or its own."""
        return self.pool or own_pool(self.tenant, self.name)

    def mode_of(self, group: str | None) -> DispatchMode:
        """Return the mode of a job whose event has this key, or none."""
        if not group and self.unkeyed is UnkeyedOrder.NONE:
            return DispatchMode.IMMEDIATE
        return self.mode

    def __repr__(self) -> str:
        # Without the secrets, which must not appear in a log.
        return f"Subscription({self.id!r}, {self.name!r}, {self.pattern!r} -> {self.target!r})"


class Pool(msgspec.Struct, frozen=True):
    """A limit on the deliveries of the jobs that name it: at once, and per minute."""

    code: str
    concurrency: int = DEFAULT_CONCURRENCY
    rate_limit_per_minute: int | None = None

    def __post_init__(self) -> None:
        if not self.code:
            raise InvalidArgument("a pool needs a code")
        if self.concurrency < 1:
            raise InvalidArgument(f"the concurrency of pool {self.code!r} is {self.concurrency}: use 1 or more")
        if self.rate_limit_per_minute is not None and self.rate_limit_per_minute < 1:
            raise InvalidArgument(
                f"the rate limit of pool {self.code!r} is {self.rate_limit_per_minute}: use 1 or more, or none"
            )


def own_pool(tenant: str, name: str) -> str:
    """Return the code of the pool that a subscription has for itself; no two subscriptions have the same."""
    first, *rest = (tenant, name) if tenant else (name,)
    code = "/".join((first.replace("%", "%25").replace("/", "%2F"), *rest))
    if is_pool_code(code):
        return code
    digest = sha256(code.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    shown = "".join(character for character in code if character.isprintable()).strip()
    return f"{shown[: MOST_CODE_CHARS - _DIGEST_CHARS - 1]}~{digest}"


def is_pool_code(code: str) -> bool:
    """Return whether a router accepts a code."""
    return code.isprintable() and bool(code.strip()) and len(code) <= MOST_CODE_CHARS
