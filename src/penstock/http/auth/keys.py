"""API keys with roles, from a TOML file that stores the hashes of keys, never the keys.

[[key]]
name = "orders-service"
role = "publisher"   # or "viewer", "admin"
sha256 = "…"         # written by `penstock keys create`
"""

import logging
import re
import tomllib
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

import msgspec

from penstock.ops.config import ConfigError, ConfigProblem

log = logging.getLogger(__name__)

Stamp = tuple[int, int, int]

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,128}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Role(StrEnum):
    """What the holder of a key may do."""

    ADMIN = "admin"
    PUBLISHER = "publisher"
    VIEWER = "viewer"
    PORTAL = "portal"
    """A customer, whose token says what is theirs; no key has this role."""


ADMIN_ONLY = frozenset({Role.ADMIN})
MAY_LOOK = frozenset({Role.ADMIN, Role.VIEWER})
MAY_PUBLISH = frozenset({Role.ADMIN, Role.PUBLISHER})
GRANTED = (Role.ADMIN, Role.PUBLISHER, Role.VIEWER)
"""The roles that keys may have."""

EVERYONE = frozenset(GRANTED)


class CallerScope(msgspec.Struct, frozen=True):
    """What belongs to a caller of the portal: the subscriptions of a tenant, or one of them."""

    tenant: str
    subscription_id: str | None = None


class Caller(msgspec.Struct, frozen=True):
    """Who sent a request; one with a scope may do only what the portal offers, with what belongs to it."""

    name: str
    role: Role
    scope: CallerScope | None = None


class ApiKey(msgspec.Struct, frozen=True):
    """A caller and the hash of its key. Keys are long and random, so that one round of hashing is enough."""

    name: str
    role: Role
    sha256: str


def digest_of(key: str) -> str:
    """Return the hash of a key."""
    return sha256(key.encode()).hexdigest()


def caller_of(given: bytes, keys: Iterable[ApiKey]) -> Caller | None:
    """Return the holder of a key. All keys are compared, so that the time taken reveals nothing."""
    found: Caller | None = None
    digest = sha256(given).hexdigest()
    for key in keys:
        if compare_digest(digest, key.sha256):
            found = Caller(key.name, key.role)
    return found


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """Return the keys in a file; ConfigError lists every problem."""
    try:
        return parsed_keys(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}; create one with `penstock keys create`"
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text (byte {error.start}); save it as UTF-8"
    raise ConfigError([ConfigProblem("", str(path), reason)])


def parsed_keys(text: str, place: str) -> tuple[ApiKey, ...]:
    """Return the keys in a text; ConfigError lists every problem."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([ConfigProblem("", place, f"is not valid TOML: {error}")]) from None
    entries = document.get("key", [])
    if not isinstance(entries, list) or set(document) - {"key"}:
        raise ConfigError([ConfigProblem("", place, "must contain [[key]] tables and nothing else")])
    names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
    problems = [
        ConfigProblem(f"key {number}", place, reason)
        for number, entry in enumerate(entries, 1)
        for reason in _reasons(entry, names)
    ]
    if problems:
        raise ConfigError(problems)
    return tuple(msgspec.convert(entries, list[ApiKey]))


def _reasons(entry: object, names: list[object]) -> list[str]:
    """Return what is wrong with a table. Never quote a value, since it may be a misplaced key."""
    if not isinstance(entry, dict):
        return ["must be a [[key]] table"]
    fields = ApiKey.__struct_fields__
    reasons = [f"unknown setting {name!r}; allowed are {', '.join(fields)}" for name in entry if name not in fields]
    name, role, digest = (entry.get(field) for field in fields)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        reasons.append("name must be 1 to 128 letters, digits, dots, hyphens, underscores or @")
    elif names.count(name) > 1:
        reasons.append(f"name {name!r} appears twice; each key needs its own")
    if role not in GRANTED:
        reasons.append(f"role must be one of {', '.join(GRANTED)}")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        reasons.append("sha256 must be 64 hexadecimal digits; `penstock keys create` prints a key and its hash")
    return reasons


class KeyFile:
    """A file of keys, read again when it changes. A file that cannot be read leaves the keys as they were."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._keys = read_keys(path)

    def current(self) -> tuple[ApiKey, ...]:
        """Return the current keys."""
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._keys = read_keys(self._path)
            except ConfigError as error:
                log.error("the API keys cannot be read; the previous ones stay valid", extra={"error": str(error)})
            else:
                log.info("read the API keys", extra={"keys": len(self._keys)})
        return self._keys


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
