"""The server's access keys, read from a TOML file.

[[key]]
access_key = "orders-service"
secret = "at least sixteen characters"
role = "client"   # or "admin"
account = "123456789012"   # optional; the account whose queues the key uses
"""

import logging
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from penstock.ops.config import ConfigError, ConfigProblem
from penstock.sqs.names import is_account

log = logging.getLogger(__name__)

MIN_SECRET_CHARS = 16
_FIELDS = ("access_key", "secret", "role", "account")
# Without the separators of the Authorization header: slash, comma, equals sign and space.
_ACCESS_KEY = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class KeyRole(StrEnum):
    """What a principal may do: clients use queues, admins also set throttles and use the admin endpoints."""

    ADMIN = "admin"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sent a request."""

    access_key: str
    role: KeyRole
    account: str | None = None


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A principal and the secret it signs with."""

    principal: Principal
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Credentials:
    """All access keys, by their public part."""

    keys: Mapping[str, AccessKey] = field(repr=False)

    def find(self, access_key: str) -> AccessKey | None:
        """Return the key with this name."""
        return self.keys.get(access_key)

    @classmethod
    def of(cls, keys: Iterable[AccessKey]) -> "Credentials":
        """Return credentials with these keys."""
        return cls(MappingProxyType({key.principal.access_key: key for key in keys}))


def load_credentials(path: Path) -> Credentials:
    """Return the credentials in the file at `path`; ConfigError lists every problem."""
    document = _read(path)
    entries = document.get("key", [])
    if not isinstance(entries, list) or not entries or set(document) != {"key"}:
        raise _error(path, "", "must contain one or more [[key]] tables and nothing else")
    problems: list[ConfigProblem] = []
    keys: dict[str, AccessKey] = {}
    for number, entry in enumerate(entries, start=1):
        place = f"key {number}"
        reasons = _reasons(entry)
        if not reasons and entry["access_key"] in keys:
            reasons = [f"access_key {entry['access_key']!r} appears twice; each key needs its own"]
        if reasons:
            problems += [ConfigProblem(place, str(path), reason) for reason in reasons]
        else:
            key = AccessKey(
                Principal(entry["access_key"], KeyRole(entry["role"]), entry.get("account")), entry["secret"]
            )
            keys[entry["access_key"]] = key
    if problems:
        raise ConfigError(problems)
    return Credentials.of(keys.values())


def is_access_key(access_key: str, secret: str) -> bool:
    """Return whether the server accepts this as a key."""
    return not _reasons({"access_key": access_key, "secret": secret, "role": KeyRole.ADMIN.value})


def parts_credentials(parts_key: str, others: Credentials | None) -> Credentials:
    """Add the key of Penstock's own parts, `NAME:SECRET`, to the others; ConfigError if it is not one."""
    name, _, secret = parts_key.partition(":")
    reasons = _reasons({"access_key": name, "secret": secret, "role": KeyRole.ADMIN.value})
    if reasons:
        raise ConfigError([ConfigProblem("sqs.parts_key", "environment", reason) for reason in reasons])
    known = () if others is None else tuple(others.keys.values())
    return Credentials.of((*known, AccessKey(Principal(name, KeyRole.ADMIN), secret)))


def _read(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            if path.stat().st_mode & stat.S_IROTH:
                log.warning("every user of this machine can read the secrets in %s; run chmod 600 on it", path)
            return tomllib.load(file)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}; name an existing credentials file"
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text (byte {error.start}); save it as UTF-8"
    except (ValueError, RecursionError) as error:
        reason = f"is not valid TOML: {error}"
    # Raised outside the handlers, so that no chained error contains the document.
    raise _error(path, "", reason)


def _reasons(entry: object) -> list[str]:
    """Return what is wrong with a table. Never quote a secret, nor a value that may be a misplaced one."""
    if not isinstance(entry, dict):
        return ["must be a [[key]] table"]
    reasons = [f"unknown setting {name!r}; allowed are {', '.join(_FIELDS)}" for name in entry if name not in _FIELDS]
    access_key, secret, role, account = (entry.get(name) for name in _FIELDS)
    if not isinstance(access_key, str) or not _ACCESS_KEY.fullmatch(access_key):
        reasons.append("access_key must be 1 to 128 letters, digits, dots, hyphens or underscores")
    if not isinstance(secret, str) or len(secret) < MIN_SECRET_CHARS:
        reasons.append(f"secret must be text of {MIN_SECRET_CHARS} characters or more")
    elif secret != secret.strip():
        reasons.append("secret begins or ends with white space; remove it")
    if role not in tuple(KeyRole):
        reasons.append('role must be "admin" or "client"')
    if account is not None and not (isinstance(account, str) and is_account(account)):
        reasons.append("account must be text of 12 digits")
    return reasons


def _error(path: Path, key: str, reason: str) -> ConfigError:
    return ConfigError([ConfigProblem(key, str(path), reason)])
