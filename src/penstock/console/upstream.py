"""Another part of Penstock, asked over HTTP: a connection per request, as a page that polls needs few."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

import httptools
import msgspec

from penstock.console.errors import PartNotConfigured, PartUnreachable
from penstock.domain.limits import MIB
from penstock.http.api.problems import Refused
from penstock.ops.telemetry.redaction import mask_whole_url
from penstock.sqs.client import Endpoint
from penstock.sqs.wire.protocol import SignedRequest

TIMEOUT_S = 5.0
MOST_BYTES = 16 * MIB
_READ_BYTES = 65_536
_REFUSES_US = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)

Sign = Callable[[SignedRequest], SignedRequest]


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """Where a part is and how to ask it; `setting` is what an operator sets to say so."""

    part: str
    url: str
    setting: str
    token: str = ""
    sign: Sign | None = None

    def __repr__(self) -> str:
        # Without the token, which must not come into a log.
        return f"Upstream({self.part!r}, {mask_whole_url(self.url)!r})"

    async def ask(
        self, method: str, path: str, query: str = "", body: bytes = b"", timeout_s: float = TIMEOUT_S
    ) -> bytes:
        """The content of a good answer; Refused with what the part says else, Unavailable if it says nothing."""
        if not self.url:
            raise PartNotConfigured(self.part, self.setting)
        endpoint = Endpoint.parse(self.url)
        request = self._request(endpoint, method, path, query, body)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await _exchange(endpoint, request)
        except TimeoutError:
            raise self._unreachable(f"no answer within {timeout_s:g} s") from None
        except (OSError, EOFError, httptools.HttpParserError) as error:
            raise self._unreachable(getattr(error, "strerror", None) or str(error) or type(error).__name__) from error
        if answer.status != HTTPStatus.OK:
            raise self._refusal(answer)
        return answer.content

    def _request(self, endpoint: Endpoint, method: str, path: str, query: str, body: bytes) -> bytes:
        headers = [(b"host", endpoint.host_header.encode()), (b"x-penstock", b"1"), (b"accept", b"application/json")]
        if body:
            headers.append((b"content-type", b"application/json"))
        if self.token:
            headers.append((b"authorization", b"Bearer " + self.token.encode()))
        request = SignedRequest(method, f"{endpoint.path}{path}".encode(), query.encode(), headers, body)
        if self.sign is not None:
            request = self.sign(request)
        target = request.path + (b"?" + request.query_string if query else b"")
        lines = [b"%b %b HTTP/1.1" % (method.encode(), target), *(b"%b: %b" % header for header in request.headers)]
        return b"\r\n".join([*lines, b"content-length: %d" % len(body), b"connection: close", b"", b""]) + body

    def _refusal(self, answer: "_Answer") -> Exception:
        if answer.status in _REFUSES_US:
            # Not passed on as it is: a page would ask its user for another token, and that is not what is wrong.
            return self._unreachable(f"it refuses this API's credentials with {answer.status}")
        try:
            return Refused(HTTPStatus(answer.status), _Refusal.read(answer.content))
        except ValueError:
            return self._unreachable(f"it answered {answer.status}")

    def _unreachable(self, reason: str) -> PartUnreachable:
        return PartUnreachable(self.part, mask_whole_url(self.url), reason, self.setting)


class _Answer(NamedTuple):
    status: int
    content: bytes


class _Refusal(msgspec.Struct):
    """A problem of ours, or an error of the SQS server."""

    detail: str = ""
    message: str = ""
    error: str = ""

    @staticmethod
    def read(content: bytes) -> str:
        """What a refusal says; ValueError if it is none."""
        told = msgspec.json.decode(content, type=_Refusal)
        return told.detail or told.message or told.error


class _Reading:
    """What was read of an answer; the parser calls it."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.chunks: list[bytes] = []
        self.size_bytes = 0
        self.complete = False

    def on_body(self, chunk: bytes) -> None:
        """A part of the body."""
        self.chunks.append(chunk)
        self.size_bytes += len(chunk)

    def on_message_complete(self) -> None:
        """All of it."""
        self.complete = True


async def _exchange(endpoint: Endpoint, request: bytes) -> _Answer:
    tls = ssl.create_default_context() if endpoint.secure else None
    port = endpoint.port or (443 if endpoint.secure else 80)
    reader, writer = await asyncio.open_connection(endpoint.host, port, ssl=tls)
    try:
        writer.write(request)
        await writer.drain()
        reading = _Reading()
        while not reading.complete:
            data = await reader.read(_READ_BYTES)
            if not data:
                raise EOFError("it hung up before its answer was whole")
            reading.parser.feed_data(data)
            if reading.size_bytes > MOST_BYTES:
                raise EOFError(f"its answer has more than {MOST_BYTES} bytes")
        return _Answer(int(reading.parser.get_status_code()), b"".join(reading.chunks))
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
