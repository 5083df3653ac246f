"""Changes that callers make through an API: who did what, when, to what. Secrets are masked."""

import logging
from typing import Protocol

import msgspec

from penstock.http.change import Change
from penstock.ops.telemetry import MASK, is_secret_name, mask_secrets

log = logging.getLogger(__name__)

MOST_CHARACTERS = 2000

_encode = msgspec.json.Encoder(order="deterministic").encode


class ChangeLog(Protocol):
    """Records changes."""

    async def record(self, change: Change) -> None:
        """Record a change."""


class LoggedChanges:
    """Records changes in the log only."""

    async def record(self, change: Change) -> None:
        """Log a change."""
        log.info("changed through the API", extra={"change": msgspec.to_builtins(change)})


def shown(content: bytes) -> str:
    """Return a body as it may be recorded: without anything that looks like a secret, and shortened."""
    if not content:
        return ""
    try:
        text = _encode(_masked(msgspec.json.decode(content))).decode()
    except (msgspec.DecodeError, RecursionError):
        text = mask_secrets(content.decode(errors="replace"))
    # Neither database can store a NUL in text.
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")[:MOST_CHARACTERS]


def _masked_field(name: object, value: object) -> object:
    # Any header of a delivery may be a credential, whatever its name.
    if name == "headers" and isinstance(value, dict):
        return dict.fromkeys(value, MASK)
    return _masked(value)


def _masked(value: object) -> object:
    match value:
        case dict():
            return {
                name: MASK if is_secret_name(str(name)) else _masked_field(name, part) for name, part in value.items()
            }
        case list():
            return [_masked(part) for part in value]
        case str():
            return mask_secrets(value)
        case _:
            return value
