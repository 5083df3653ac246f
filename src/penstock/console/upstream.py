"""Another part of Penstock, called over HTTP with a connection per request, as a page that polls needs few."""

from collections.abc import Callable
from http import HTTPStatus

import msgspec

from penstock.console.errors import PartNotConfigured, PartUnreachable
from penstock.delivery import (
    Answer,
    DeliveryFailed,
    RequestHead,
    Undeliverable,
    exchange_once,
    head_with,
    own_part_settings,
    parse_target,
)
from penstock.domain.limits import MIB
from penstock.http.problems import Refused
from penstock.ops.telemetry import mask_whole_url
from penstock.sqs import SignedRequest
from penstock.sqs.client import SqsEndpoint

TIMEOUT_S = 5.0
MOST_BYTES = 16 * MIB
_REFUSES_US = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)

Sign = Callable[[SignedRequest], SignedRequest]


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a part and how to call it; `setting` is the key that an operator sets."""

    part: str
    url: str
    setting: str
    token: str = ""
    sign: Sign | None = None

    def __repr__(self) -> str:
        # Without the token, which must not be logged.
        return f"Upstream({self.part!r}, {mask_whole_url(self.url)!r})"

    async def ask(
        self, method: str, path: str, query: str = "", body: bytes = b"", timeout_s: float = TIMEOUT_S
    ) -> bytes:
        """Return the body of a successful answer; Refused with the part's error, Unavailable if it does not answer."""
        if not self.url:
            raise PartNotConfigured(self.part, self.setting)
        try:
            head = self._head(SqsEndpoint.parse(self.url), method, path, query, body)
            answer = await exchange_once(head, body, own_part_settings(timeout_s, MOST_BYTES))
        except (DeliveryFailed, Undeliverable) as error:
            raise self._unreachable(error.message) from error
        if len(answer.body) > MOST_BYTES:
            raise self._unreachable(f"its answer has more than {MOST_BYTES} bytes")
        if answer.status != HTTPStatus.OK:
            raise self._refusal(answer)
        return answer.body

    def _head(self, endpoint: SqsEndpoint, method: str, path: str, query: str, body: bytes) -> RequestHead:
        scheme = "https" if endpoint.secure else "http"
        url = f"{scheme}://{endpoint.host_header}{endpoint.path}{path}{f'?{query}' if query else ''}"
        headers = [("x-penstock", "1"), ("accept", "application/json")]
        if body:
            headers.append(("content-type", "application/json"))
        if self.token:
            headers.append(("authorization", f"Bearer {self.token}"))
        if self.sign is not None:
            headers = _signed(self.sign, method, url, headers, body)
        return head_with(url, tuple(headers), method)

    def _refusal(self, answer: Answer) -> Exception:
        if answer.status in _REFUSES_US:
            # Not passed on unchanged: the page would ask the user for another token, which is not the problem.
            return self._unreachable(f"it refuses this API's credentials with {answer.status}")
        try:
            return Refused(HTTPStatus(answer.status), _Refusal.read(answer.body))
        except ValueError:
            return self._unreachable(f"it answered {answer.status}")

    def _unreachable(self, reason: str) -> PartUnreachable:
        return PartUnreachable(self.part, mask_whole_url(self.url), reason, self.setting)


class _Refusal(msgspec.Struct):
    """A problem of ours, or an error of the SQS server."""

    detail: str = ""
    message: str = ""
    error: str = ""

    @staticmethod
    def read(content: bytes) -> str:
        """Return the message of a refusal; ValueError if it is not one."""
        refusal = msgspec.json.decode(content, type=_Refusal)
        return refusal.detail or refusal.message or refusal.error


def _signed(sign: Sign, method: str, url: str, headers: list[tuple[str, str]], body: bytes) -> list[tuple[str, str]]:
    """Return the headers with those of a signature, which covers the Host header too."""
    target = parse_target(url)
    path, _, query = target.path.partition("?")
    given = [("host", target.authority), *headers]
    request = SignedRequest(
        method, path.encode(), query.encode(), [(name.encode(), value.encode()) for name, value in given], body
    )
    named = [(name.decode().lower(), value.decode()) for name, value in sign(request).headers]
    return [header for header in named if header[0] != "host"]
