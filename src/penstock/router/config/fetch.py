"""Reads the router's configuration from URLs and files."""

import asyncio
import tomllib
from base64 import b64encode
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.delivery import DeliveryFailed, RequestHead, Undeliverable, exchange_once, head_with, own_part_settings
from penstock.domain.errors import InvalidArgument, NotFound, Unavailable
from penstock.domain.limits import MIB
from penstock.ops.telemetry import mask_whole_url
from penstock.router.config.configuration import RouterConfiguration, merge, parse_configuration

TIMEOUT_S = 10.0
# 10,000 pools take about 1 MiB.
MAX_BYTES = 16 * MIB


async def fetch_configuration(sources: Sequence[str]) -> RouterConfiguration:
    """Read all sources and merge them, the first one first; raise an error if one of them cannot be read."""
    if not sources:
        raise InvalidArgument("the router has no configuration; give --config URL or FILE, or set router.config")
    found = await asyncio.gather(*(_fetch(source) for source in sources), return_exceptions=True)
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return merge(each for each in found if isinstance(each, RouterConfiguration))


def is_file(source: str) -> bool:
    """Return whether a source is a file, not a URL."""
    return "://" not in source


async def _fetch(source: str) -> RouterConfiguration:
    content = await (asyncio.to_thread(_read, Path(source)) if is_file(source) else _get(source))
    return parse_configuration(_document(source, content), source)


def _document(source: str, content: bytes) -> object:
    is_toml = is_file(source) and source.endswith(".toml")
    try:
        return tomllib.loads(content.decode()) if is_toml else msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:  # ValueError: invalid JSON, invalid TOML, or not UTF-8
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
    head = _head(url)
    try:
        answer = await exchange_once(head, b"", own_part_settings(TIMEOUT_S, MAX_BYTES))
    except DeliveryFailed as error:
        raise Unavailable(f"cannot get the router configuration from {_shown(url)}: {error.message}") from error
    if answer.status != HTTPStatus.OK:
        raise Unavailable(f"{_shown(url)} answered {answer.status} instead of 200; redirects are not followed")
    if len(answer.body) > MAX_BYTES:
        raise _too_large(url)
    return answer.body


def _head(url: str) -> RequestHead:
    """Return a GET request of a URL; a user name and password in it become a header."""
    headers: list[tuple[str, str]] = [("accept", "application/json")]
    try:
        parts = urlsplit(url)
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers.append(("authorization", f"Basic {b64encode(pair.encode()).decode()}"))
            # Edit the original text, as urlsplit drops line breaks and tabs.
            url = url.replace(f"{parts.netloc.rpartition('@')[0]}@", "", 1)
        return head_with(url, tuple(headers), "GET")
    except (ValueError, Undeliverable):
        raise InvalidArgument(f"{_shown(url)} is neither a file nor a URL such as https://host/router.json") from None


def _too_large(source: str) -> InvalidArgument:
    return InvalidArgument(f"the router configuration at {_shown(source)} is larger than {MAX_BYTES} bytes")


def _shown(source: str) -> str:
    return source if is_file(source) else mask_whole_url(source)
