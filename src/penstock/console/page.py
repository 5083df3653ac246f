"""Serves the page's files in front of the API; every other path belongs to the API.

Loading the page needs no credentials; the API calls that it makes do. The browser may run only these files, may not
write HTML into the page (trusted types), and may not show it in a frame, except for the customers' portal where
`api.portal_frames` says so. The portal is the same page at another path: what its token may not do is not in it.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

from penstock.events.portal import PAGE_PATH
from penstock.http.server import App, Receive, Scope, Send, send_answer

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX = "index.html"


class Asset(msgspec.Struct, frozen=True):
    """A file as it is served."""

    content: bytes
    content_type: str
    tag: str


def load_assets() -> Mapping[str, Asset]:
    """Return all files by the path they are served at; the page itself is at `/`."""
    return dict(_under(files("penstock.console") / "static", ""))


def _under(directory: Traversable, path: str) -> Iterator[tuple[str, Asset]]:
    for entry in directory.iterdir():
        place = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _under(entry, place)
        elif (content_type := _TYPES.get(entry.name[entry.name.rfind(".") :])) is not None:
            content = entry.read_bytes()
            asset = Asset(content, content_type, f'"{sha256(content).hexdigest()[:32]}"')
            yield ("/" if place == f"/{_INDEX}" else f"/ui{place}"), asset


CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Checked on each load, so that a new version is seen immediately; the tag makes that cheap.
    "cache-control": "no-cache",
}


def with_page(app: App, frames: str = "") -> App:
    """Return the app with the page in front; pages of the origins `frames` may show the portal in a frame."""
    assets = load_assets()
    portal = dict(_HEADERS)
    if frames:
        portal["content-security-policy"] = CONTENT_SECURITY_POLICY.replace(
            "frame-ancestors 'none'", f"frame-ancestors {frames}"
        )

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path == PAGE_PATH:
            await _serve(assets["/"], scope, send, portal)
        elif path in assets:
            await _serve(assets[path], scope, send, _HEADERS)
        else:
            await app(scope, receive, send)

    return served


async def _serve(asset: Asset, scope: Scope, send: Send, always: Mapping[str, str]) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        await send_answer(scope, send, HTTPStatus.METHOD_NOT_ALLOWED, b"", {**always, "allow": "GET, HEAD"})
        return
    headers = {**always, "content-type": asset.content_type, "etag": asset.tag}
    known = [value for name, value in scope["headers"] if name == b"if-none-match"]
    if any(asset.tag.encode() in value for value in known):
        await send_answer(scope, send, HTTPStatus.NOT_MODIFIED, b"", headers)
    else:
        await send_answer(scope, send, HTTPStatus.OK, asset.content, headers)
