"""Reading the router's configuration from URLs and files."""

import asyncio
import ssl
import tomllib
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import httptools
import msgspec

from penstock.domain.errors import InvalidArgument, NotFound, PenstockError, Unavailable
from penstock.domain.limits import MIB
from penstock.ops.telemetry.redaction import mask_whole_url
from penstock.router.config.configuration import RouterConfiguration, merge, parse_configuration

TIMEOUT_S = 10.0
# 10,000 pools take about 1 MiB.
MAX_BYTES = 16 * MIB


async def fetch_configuration(sources: Sequence[str]) -> RouterConfiguration:
    """What all sources say together, the first of them first; an error if one of them cannot be read."""
    if not sources:
        raise InvalidArgument("the router has no configuration; give --config URL or FILE, or set router.config")
    found = await asyncio.gather(*(_fetch(source) for source in sources), return_exceptions=True)
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return merge(each for each in found if isinstance(each, RouterConfiguration))


def is_file(source: str) -> bool:
    """Whether a source is a file, not a URL."""
    return "://" not in source


async def _fetch(source: str) -> RouterConfiguration:
    content = await (asyncio.to_thread(_read, Path(source)) if is_file(source) else _get(source))
    return parse_configuration(_document(source, content), source)


def _document(source: str, content: bytes) -> object:
    is_toml = is_file(source) and source.endswith(".toml")
    try:
        return tomllib.loads(content.decode()) if is_toml else msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:  # ValueError: of JSON, of TOML, and of text that is not UTF-8
        kind = "TOML" if is_toml else "JSON"
        raise InvalidArgument(f"the router configuration at {_shown(source)} is not valid {kind}: {error}") from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise NotFound(f"there is no router configuration at {path}; give an existing file, or a URL") from error
    except OSError as error:
        raise Unavailable(f"cannot read the router configuration at {path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise _too_large(str(path))
    return content


async def _get(url: str) -> bytes:
    parts = _checked(url)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await _exchange(url, parts)
    except TimeoutError as error:
        raise Unavailable(f"no router configuration from {_shown(url)} within {TIMEOUT_S:g} s") from error
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise Unavailable(f"cannot get the router configuration from {_shown(url)}: {reason}") from error
    except httptools.HttpParserError as error:
        raise Unavailable(f"{_shown(url)} does not speak HTTP: {error}") from error
    if answer.status != 200:
        raise Unavailable(f"{_shown(url)} answered {answer.status} instead of 200; redirects are not followed")
    return b"".join(answer.pieces)


def _checked(url: str) -> SplitResult:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and url.isprintable():
            return parts
    raise InvalidArgument(f"{_shown(url)} is neither a file nor a URL such as https://host/router.json")


class _Answer:
    """Gathers what the parser finds."""

    def __init__(self, url: str) -> None:
        self.status = 0
        self.pieces: list[bytes] = []
        self.complete = False
        self._url = url
        self._parser = httptools.HttpResponseParser(self)
        self._size_bytes = 0
        self._length_is_told = False

    def feed(self, data: bytes) -> None:
        """Take what came; nothing at all is the end of the connection."""
        if data:
            self._parser.feed_data(data)
        elif self.status and not self._length_is_told:
            self.complete = True
        else:
            raise Unavailable(f"{_shown(self._url)} hung up in the middle of its answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._length_is_told |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._size_bytes += len(body)
        if self._size_bytes > MAX_BYTES:
            raise _too_large(self._url)
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        # An interim answer such as 103 is followed by the real one.
        self.complete = self.status >= 200


async def _exchange(url: str, parts: SplitResult) -> _Answer:
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls)
    try:
        writer.write(_request(parts))
        answer = _Answer(url)
        while not answer.complete:
            try:
                answer.feed(await reader.read(65_536))
            except httptools.HttpParserCallbackError as error:
                # The parser wraps what a callback raises.
                raise error.__context__ if isinstance(error.__context__, PenstockError) else error from None
        return answer
    finally:
        writer.transport.abort()


def _request(parts: SplitResult) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"GET {target} HTTP/1.1", f"Host: {parts.netloc.rpartition('@')[2]}", "Accept: application/json"]
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        lines.append(f"Authorization: Basic {b64encode(pair.encode()).decode()}")
    return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode("ascii", "strict")


def _too_large(source: str) -> InvalidArgument:
    return InvalidArgument(f"the router configuration at {_shown(source)} is larger than {MAX_BYTES} bytes")


def _shown(source: str) -> str:
    return source if is_file(source) else mask_whole_url(source)
