"""The API's address, the headers of requests, and the meaning of answers."""

from urllib.parse import urlsplit

import msgspec

from penstock.client.calls import A, ApiCall
from penstock.client.errors import NoAnswer, StrangeAnswer, TokenRefused
from penstock.client.types import Problem
from penstock.domain.errors import InvalidArgument, NotFound, PenstockError, ResourceExhausted, Unavailable

REPEAT_AFTER_S = (0.1, 0.5)
"""Pauses before a repeatable call is sent again after its connection broke."""

_OK = 200
_REFUSALS: dict[int, type[PenstockError]] = {
    400: InvalidArgument,
    401: TokenRefused,
    403: TokenRefused,
    404: NotFound,
    413: InvalidArgument,
    415: InvalidArgument,
    422: InvalidArgument,
    429: ResourceExhausted,
    503: Unavailable,
}


class Endpoint(msgspec.Struct, frozen=True):
    """An API's address and the token for it."""

    url: str
    host: str
    port: int
    secure: bool
    base_path: str
    token: str | None

    @classmethod
    def parse(cls, url: str, token: str | None) -> "Endpoint":
        """Parse a URL such as http://127.0.0.1:8080; InvalidArgument if it is not one."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidArgument(f"the API's URL cannot be read: {error}") from error
        if "@" in parts.netloc:
            raise InvalidArgument("the API's URL has a user or a password in it: give the token as `token`")
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            raise InvalidArgument(f"{url!r} is not the URL of an API: give one such as http://127.0.0.1:8080")
        secure = parts.scheme == "https"
        base_path = parts.path.rstrip("/")
        return cls(url, parts.hostname, port or (443 if secure else 80), secure, base_path, token)

    def __repr__(self) -> str:
        # Without the token: a repr may end up in logs.
        return f"Endpoint({self.url!r})"

    @property
    def origin(self) -> str:
        """Return the URL without its path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}"

    def headers(self, body: bytes | None) -> dict[str, str]:
        """Return the headers of a request, except those of HTTP itself."""
        headers = {"X-Penstock": "1", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    def read(self, call: ApiCall[A], status: int, content: bytes) -> A:
        """Return the answer as a value, or raise the error that it reports."""
        try:
            if status == _OK:
                return msgspec.json.decode(content, type=call.answer)
            detail = msgspec.json.decode(content, type=Problem).detail
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StrangeAnswer(
                f"{self.url} answered {call.method} {call.path} with {status} and content that is not Penstock's: "
                "check the URL, and that client and server are of the same version"
            ) from error
        kind = call.conflict if status == 409 else _REFUSALS.get(status, PenstockError)
        raise kind(detail)

    def no_answer(self, call: ApiCall[A], reason: str, *, sent: bool = True) -> NoAnswer:
        """Return the error of a call that was not answered; `sent`, unless there was no connection at all."""
        unknown = "" if call.repeatable or not sent else "; it may have taken effect: check before you repeat it"
        return NoAnswer(f"{self.url} did not answer {call.method} {call.path}: {reason}{unknown}")
