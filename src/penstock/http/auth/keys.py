"""Who may call an API, by keys with roles: a TOML file that holds what the keys hash to, never the keys.

[[key]]
name = "orders-service"
role = "publisher"   # or "viewer", "admin"
sha256 = "…"         # `penstock keys create` writes it

A file of API keys that may change while it is used: who was removed is refused from the next request on.
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

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,128}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Role(StrEnum):
    """What the holder of a key may do."""

    ADMIN = "admin"
    PUBLISHER = "publisher"
    VIEWER = "viewer"


ADMIN_ONLY = frozenset({Role.ADMIN})
MAY_LOOK = frozenset({Role.ADMIN, Role.VIEWER})
MAY_PUBLISH = frozenset({Role.ADMIN, Role.PUBLISHER})
EVERYONE = frozenset(Role)


class Caller(msgspec.Struct, frozen=True):
    """Who a request comes from."""

    name: str
    role: Role


class ApiKey(msgspec.Struct, frozen=True):
    """A caller, and what its key hashes to. Keys are long and random, so that one round of hashing is enough."""

    name: str
    role: Role
    sha256: str


def digest_of(key: str) -> str:
    """What is kept of a key."""
    return sha256(key.encode()).hexdigest()


def caller_of(given: bytes, keys: Iterable[ApiKey]) -> Caller | None:
    """Whose key this is. All of them are compared, so that the time taken tells nothing."""
    found: Caller | None = None
    digest = sha256(given).hexdigest()
    for key in keys:
        if compare_digest(digest, key.sha256):
            found = Caller(key.name, key.role)
    return found


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """The keys in a file; ConfigError with every problem else."""
    try:
        return parsed_keys(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}; `penstock keys create` makes one"
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text (byte {error.start}); save it as UTF-8"
    raise ConfigError([ConfigProblem("", str(path), reason)])


def parsed_keys(text: str, place: str) -> tuple[ApiKey, ...]:
    """The keys in a text; ConfigError with every problem else."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([ConfigProblem("", place, f"is not valid TOML: {error}")]) from None
    entries = document.get("key", [])
    if not isinstance(entries, list) or set(document) - {"key"}:
        raise ConfigError([ConfigProblem("", place, "must hold [[key]] tables and nothing else")])
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
    """What is wrong with one table; shows no value, since one may be a key in the wrong place."""
    if not isinstance(entry, dict):
        return ["must be a [[key]] table"]
    fields = ApiKey.__struct_fields__
    reasons = [f"unknown setting {name!r}; allowed are {', '.join(fields)}" for name in entry if name not in fields]
    name, role, digest = (entry.get(field) for field in fields)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        reasons.append("name must be 1 to 128 letters, digits, dots, hyphens, underscores or @")
    elif names.count(name) > 1:
        reasons.append(f"name {name!r} is there twice; each key needs its own")
    if role not in tuple(Role):
        reasons.append(f"role must be one of {', '.join(Role)}")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        reasons.append("sha256 must be 64 hexadecimal digits; `penstock keys create` makes a key and its hash")
    return reasons


log = logging.getLogger(__name__)

Stamp = tuple[int, int, int]


class KeyFile:
    """Reads the keys anew whenever the file was written. One that cannot be used leaves the keys as they were."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._keys = read_keys(path)

    def current(self) -> tuple[ApiKey, ...]:
        """The keys as they are now."""
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._keys = read_keys(self._path)
            except ConfigError as error:
                log.error("the API keys cannot be read; those known before stay valid", extra={"error": str(error)})
            else:
                log.info("API keys read", extra={"keys": len(self._keys)})
        return self._keys


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
