"""OAuth2 tokens for deliveries: the client credentials grant (RFC 6749, 4.4).

A token is fetched when a delivery needs it, shared by all deliveries with the same credentials, renewed shortly before
it expires, and dropped when an endpoint answers 401. Deliveries that need one at the same time wait for one request.
"""

import asyncio
from base64 import b64encode
from collections import OrderedDict
from urllib.parse import quote_plus, urlencode

import msgspec

from penstock.delivery.attempt import Attempts
from penstock.delivery.breakers import Breakers
from penstock.delivery.errors import NoToken
from penstock.delivery.http.answer import Answer
from penstock.delivery.http.request import head_with
from penstock.domain.limits import SECOND_MS
from penstock.domain.outcome import CircuitOpen, ClientErrors, MediationOutcome, MediationResult, error_text, outcome_of
from penstock.domain.subscription import OAuth2Client
from penstock.edge.clock import Clock

MOST_TOKENS = 1000
FETCH_S = 10.0
USUAL_LIFE_S = 300
"""How long a token is used whose issuer does not say."""
RENEW_BEFORE_S = 30
RENEW_SHARE = 0.1

_LONGEST_LIFE_S = 24 * 3600


class _Issued(msgspec.Struct, frozen=True):
    """What an issuer answers (RFC 6749, 5.1)."""

    access_token: str
    expires_in: float | str = USUAL_LIFE_S
    token_type: str = "bearer"


class _Refused(msgspec.Struct, frozen=True):
    """What it answers instead (RFC 6749, 5.2); `error_description` is left out, as it may repeat the request."""

    error: str = ""


class Token(msgspec.Struct, frozen=True, eq=False):
    """A token, and until when it is used."""

    value: str
    until_ms: int

    def __repr__(self) -> str:
        return "Token()"


class OAuth2Tokens:
    """The tokens of all subscriptions of a process. Bound to one event loop."""

    def __init__(self, attempts: Attempts, breakers: Breakers, clock: Clock) -> None:
        self._attempts = attempts
        self._breakers = breakers
        self._clock = clock
        self._known: OrderedDict[OAuth2Client, Token] = OrderedDict()
        self._fetching: dict[OAuth2Client, asyncio.Task[Token]] = {}

    async def get(self, client: OAuth2Client) -> Token:
        """Return a token that is valid now; NoToken says why there is none."""
        token = self._known.get(client)
        if token is not None and self._clock.now_ms() < token.until_ms:
            self._known.move_to_end(client)
            return token
        fetching = self._fetching.get(client)
        if fetching is None:
            fetching = self._fetching[client] = asyncio.ensure_future(self._fetch(client))
            fetching.add_done_callback(lambda ended: self._fetched(client, ended))
        # Shared, so a delivery that is cancelled must not cancel it.
        return await asyncio.shield(fetching)

    def drop(self, client: OAuth2Client, token: Token) -> None:
        """Forget a token that an endpoint refused, unless there is a newer one."""
        if self._known.get(client) is token:
            del self._known[client]

    def close(self) -> None:
        """Cancel the requests for tokens."""
        for fetching in list(self._fetching.values()):
            fetching.cancel()

    def _fetched(self, client: OAuth2Client, ended: "asyncio.Task[Token]") -> None:
        self._fetching.pop(client, None)
        if ended.cancelled() or ended.exception() is not None:
            return
        self._known[client] = ended.result()
        self._known.move_to_end(client)
        while len(self._known) > MOST_TOKENS:
            self._known.popitem(last=False)

    async def _fetch(self, client: OAuth2Client) -> Token:
        answers: list[Answer] = []

        def read(answer: Answer) -> MediationOutcome:
            answers.append(answer)
            return outcome_of(answer.status, answer.retry_after, b"", self._clock.now_ms(), ClientErrors.RETRY)

        head = head_with(client.token_url, _headers(client))
        breaker = self._breakers.of(head.target.endpoint)
        asked_ms = self._clock.now_ms()
        outcome = await self._attempts.make(breaker, head, _body(client), None, read, timeout_s=FETCH_S)
        if outcome.result is not MediationResult.SUCCESS:
            said = _error_of(answers[0]) if answers else ""
            rest_s = outcome.error.retry_s if isinstance(outcome.error, CircuitOpen) else None
            raise NoToken(head.target.endpoint, f"{error_text(outcome.error)}{said}", rest_s)
        return _token(answers[0], head.target.endpoint, asked_ms)


def _headers(client: OAuth2Client) -> tuple[tuple[str, str], ...]:
    # The form that every issuer has to accept (RFC 6749, 2.3.1).
    pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}".encode("ascii")
    return (
        ("content-type", "application/x-www-form-urlencoded"),
        ("accept", "application/json"),
        ("user-agent", "penstock"),
        ("authorization", f"Basic {b64encode(pair).decode()}"),
    )


def _body(client: OAuth2Client) -> bytes:
    fields = {"grant_type": "client_credentials", "scope": client.scope, "audience": client.audience}
    return urlencode({name: value for name, value in fields.items() if value}).encode("ascii")


def _error_of(answer: Answer) -> str:
    try:
        error = msgspec.json.decode(answer.body, type=_Refused).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return f" ({error[:100]})" if error.isprintable() and error else ""


def _token(answer: Answer, endpoint: str, asked_ms: int) -> Token:
    try:
        issued = msgspec.json.decode(answer.body, type=_Issued)
        life_s = float(issued.expires_in)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise NoToken(endpoint, "its answer is not that of an OAuth2 token endpoint") from error
    if issued.token_type.lower() != "bearer" or not issued.access_token or not _is_header_value(issued.access_token):
        raise NoToken(endpoint, f"its token of type {issued.token_type[:20]!r} cannot be sent as a bearer token")
    used_s = max(0.0, life_s - min(RENEW_BEFORE_S, life_s * RENEW_SHARE))
    return Token(issued.access_token, asked_ms + round(min(used_s, _LONGEST_LIFE_S) * SECOND_MS))


def _is_header_value(text: str) -> bool:
    return all("!" <= character <= "~" for character in text)
