"""The grammar of resource names: projects/PROJECT/topics/ID and the like.

Lists by pages: a token says after which name the next page begins.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.pubsub.errors import InvalidName, InvalidRequest

DELETED_TOPIC = "_deleted-topic_"
DELETED_SCHEMA = "_deleted-schema_"

_PROJECT = r"projects/[^/\s]+"
_ID = r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}"
_RULE = "an id has 3 to 255 letters, digits and any of -_.~+%, starts with a letter, and does not start with 'goog'"
_KINDS = {kind: re.compile(rf"{_PROJECT}/{kind}/{_ID}") for kind in ("topics", "subscriptions", "snapshots", "schemas")}
_PROJECT_NAME = re.compile(_PROJECT)
_REVISION = re.compile(r"(?P<schema>.+)@(?P<revision>[0-9a-f]{8})")


def topic_name(name: str) -> str:
    """The name of a topic, when it is one."""
    return _checked("topics", name)


def subscription_name(name: str) -> str:
    """The name of a subscription, when it is one."""
    return _checked("subscriptions", name)


def snapshot_name(name: str) -> str:
    """The name of a snapshot, when it is one."""
    return _checked("snapshots", name)


def schema_name(name: str) -> str:
    """The name of a schema without a revision, when it is one."""
    return _checked("schemas", name)


def schema_revision(name: str) -> tuple[str, str | None]:
    """The schema and the revision in projects/PROJECT/schemas/ID@REVISION; the revision may be missing."""
    match = _REVISION.fullmatch(name)
    if match is None:
        return schema_name(name), None
    return schema_name(match["schema"]), match["revision"]


def project_name(name: str) -> str:
    """The name of a project, when it is one."""
    if not _PROJECT_NAME.fullmatch(name):
        raise InvalidName(f"Invalid project name {name!r}: it must be projects/PROJECT")
    return name


def project_of(name: str) -> str:
    """The project a checked name belongs to."""
    return "/".join(name.split("/", 2)[:2])


def _checked(kind: str, name: str) -> str:
    if not _KINDS[kind].fullmatch(name):
        raise InvalidName(f"Invalid name {name!r}: it must be projects/PROJECT/{kind}/ID, where {_RULE}")
    return name


T = TypeVar("T")

MAX_PAGE = 1000


def page(items: Sequence[T], name_of: Callable[[T], str], page_size: int, page_token: str) -> tuple[Sequence[T], str]:
    """The next items by name, and the token of what follows; empty when that is nothing."""
    if page_size < 0:
        raise InvalidRequest(f"page_size must not be negative, got {page_size}")
    after = _decode(page_token)
    rest = sorted((item for item in items if name_of(item) > after), key=name_of)
    size = min(page_size or MAX_PAGE, MAX_PAGE)
    taken = rest[:size]
    return taken, _encode(name_of(taken[-1])) if len(rest) > size else ""


def _encode(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode()


def _decode(token: str) -> str:
    try:
        return urlsafe_b64decode(token.encode()).decode()
    except (Error, ValueError) as error:
        raise InvalidRequest(f"page_token {token[:40]!r} is not one this server gave") from error
