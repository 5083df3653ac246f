"""The statements, read from the named blocks of `sql/*.sql`, for one of the two databases."""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files

from penstock.jobs.stored_state import StoredMode, StoredState

_BLOCK = re.compile(r"^-- (\w+) --$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_MACRO = re.compile(r"\{([^{}]+)\}")
_PLACEHOLDER = re.compile(r"(?<![:\w]):([a-z]\w*)")

JOB_COLUMNS = (
    "id", "tenant", "type", "event_id", "subscription_id", "group_name", "group_key", "sequence", "mode", "state",
    "target", "pool", "payload", "content_type", "headers", "idempotency_key", "scheduled_for_ms", "due_at_ms",
    "expires_at_ms", "attempt_count", "delivery_count", "publish_round", "owner", "lease_until_ms", "last_error",
    "created_at_ms", "updated_at_ms", "finished_at_ms",
)  # fmt: skip
_WORDS: dict[str, str] = {
    **{state.name: str(int(state)) for state in StoredState},
    **{mode.name: str(int(mode)) for mode in StoredMode},
    "job columns": ", ".join(JOB_COLUMNS),
}


class Dialect(StrEnum):
    """A database's way of SQL."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


# SQLite has one writer, so nothing needs a lock there; a list comes to it as JSON.
_LOCKS = {
    "for update": "FOR UPDATE",
    "for share": "FOR SHARE",
    "skip locked": "FOR UPDATE SKIP LOCKED",
}


@cache
def queries(dialect: Dialect) -> Mapping[str, str]:
    """All statements of a database, by name."""
    directory = files("penstock.jobs") / "sql"
    names = ("shared", dialect, "replays", f"replays_{dialect}")
    texts = [(directory / f"{name}.sql").read_text(encoding="utf-8") for name in names]
    return {name: translated(text, dialect) for source in texts for name, text in named_blocks(source).items()}


def named_blocks(source: str) -> dict[str, str]:
    """The blocks of a file, each begun by a line `-- name --`."""
    _, *parts = _BLOCK.split(source)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def translated(text: str, dialect: Dialect) -> str:
    """A block as its database wants it: without comments and shorthand."""
    plain = _MACRO.sub(lambda found: _spelled_out(found[1], dialect), _COMMENT.sub("", text)).strip()
    return _PLACEHOLDER.sub(r"%(\1)s", plain) if dialect is Dialect.POSTGRES else plain


def _spelled_out(shorthand: str, dialect: Dialect) -> str:
    if shorthand in _WORDS:
        return _WORDS[shorthand]
    postgres = dialect is Dialect.POSTGRES
    if shorthand == "stored state":
        return "CAST(state AS integer)" if postgres else "state"
    if shorthand in _LOCKS:
        return _LOCKS[shorthand] if postgres else ""
    verb, _, name = shorthand.partition(" ")
    if verb == "by":
        return "" if postgres else f"INDEXED BY {name}"
    if verb != "among":
        raise ValueError(f"{{{shorthand}}} stands for nothing")
    return f"= ANY(:{name})" if postgres else f"IN (SELECT value FROM json_each(:{name}))"
