"""The grammar of resource names, such as projects/PROJECT/topics/ID."""

import re

from penstock.pubsub.errors import InvalidName

DELETED_TOPIC = "_deleted-topic_"
DELETED_SCHEMA = "_deleted-schema_"

_PROJECT = r"projects/[^/\s]+"
_ID = r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}"
_RULE = "an id has 3 to 255 letters, digits and any of -_.~+%, starts with a letter, and does not start with 'goog'"
_KINDS = {kind: re.compile(rf"{_PROJECT}/{kind}/{_ID}") for kind in ("topics", "subscriptions", "snapshots", "schemas")}
_PROJECT_NAME = re.compile(_PROJECT)
_REVISION = re.compile(r"(?P<schema>.+)@(?P<revision>[0-9a-f]{8})")


def topic_name(name: str) -> str:
    """Return the name if it is a topic's; raise InvalidName otherwise."""
    return _checked("topics", name)


def subscription_name(name: str) -> str:
    """Return the name if it is a subscription's; raise InvalidName otherwise."""
    return _checked("subscriptions", name)


def snapshot_name(name: str) -> str:
    """Return the name if it is a snapshot's; raise InvalidName otherwise."""
    return _checked("snapshots", name)


def schema_name(name: str) -> str:
    """Return the name if it is a schema's, without a revision; raise InvalidName otherwise."""
    return _checked("schemas", name)


def schema_revision(name: str) -> tuple[str, str | None]:
    """Return the schema and the revision in projects/PROJECT/schemas/ID@REVISION; the revision may be missing."""
    match = _REVISION.fullmatch(name)
    if match is None:
        return schema_name(name), None
    return schema_name(match["schema"]), match["revision"]


def project_name(name: str) -> str:
    """Return the name if it is a project's; raise InvalidName otherwise."""
    if not _PROJECT_NAME.fullmatch(name):
        raise InvalidName(f"Invalid project name {name!r}: it must be projects/PROJECT")
    return name


def project_of(name: str) -> str:
    """Return the project of a valid name."""
    return "/".join(name.split("/", 2)[:2])


def _checked(kind: str, name: str) -> str:
    if not _KINDS[kind].fullmatch(name):
        raise InvalidName(f"Invalid name {name!r}: it must be projects/PROJECT/{kind}/ID, where {_RULE}")
    return name
