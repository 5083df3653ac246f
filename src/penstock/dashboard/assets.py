"""The files of the page, read once, each with its type and a tag that changes with its content."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX = "index.html"


class Asset(msgspec.Struct, frozen=True):
    """One file as it is served."""

    content: bytes
    content_type: str
    tag: str


def load_assets() -> Mapping[str, Asset]:
    """All files by the path they are served at; the page itself is at `/`."""
    return dict(_under(files("penstock.dashboard") / "static", ""))


def _under(directory: Traversable, path: str) -> Iterator[tuple[str, Asset]]:
    for entry in directory.iterdir():
        place = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _under(entry, place)
        elif (content_type := _TYPES.get(entry.name[entry.name.rfind(".") :])) is not None:
            content = entry.read_bytes()
            asset = Asset(content, content_type, f'"{sha256(content).hexdigest()[:32]}"')
            yield ("/" if place == f"/{_INDEX}" else f"/ui{place}"), asset
