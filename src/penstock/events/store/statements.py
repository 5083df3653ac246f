"""The statements, read from the named blocks of `sql/*.sql`, for one of the two databases.

How statuses and modes are kept in a column: small numbers, the same in both databases, never renumbered.

Rows of the database as values.
"""

import re
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from functools import cache
from importlib.resources import files

import msgspec

from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.message import NO_ATTRIBUTES
from penstock.domain.pointer import DispatchMode
from penstock.events.store.transaction import Row


class StoredState(IntEnum):
    """A status as it is kept. PENDING is two of them, so that each can be found without looking at the other."""

    WAITING = 0  # PENDING, not due yet
    READY = 1  # PENDING and due
    RESERVED = 2  # until 0.1: PENDING and being published; no job has it any more
    QUEUED = 3
    PROCESSING = 4
    COMPLETED = 5
    ERROR = 6
    CANCELLED = 7
    EXPIRED = 8


class StoredMode(IntEnum):
    """A dispatch mode as it is kept; the ordered ones are the positive ones."""

    IMMEDIATE = 0
    NEXT_ON_ERROR = 1
    BLOCK_ON_ERROR = 2


_PENDING = (StoredState.WAITING, StoredState.READY, StoredState.RESERVED)

STATUS_OF: tuple[JobStatus, ...] = tuple(
    JobStatus.PENDING if state in _PENDING else JobStatus[state.name] for state in StoredState
)
MODE_OF: tuple[DispatchMode, ...] = tuple(DispatchMode[mode.name] for mode in StoredMode)
CODE_OF_MODE: dict[DispatchMode, int] = {mode: code for code, mode in enumerate(MODE_OF)}


def codes_of(status: JobStatus) -> list[int]:
    """The numbers that a status is kept as."""
    return [code for code, known in enumerate(STATUS_OF) if known is status]


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
    directory = files("penstock.events.store") / "sql"
    names = ("shared", dialect, "replays", f"replays_{dialect}")
    texts = [(directory / f"{name}.sql").read_text(encoding="utf-8") for name in names]
    return {name: translated(text, dialect) for source in texts for name, text in named_blocks(source).items()}


def named_blocks(source: str) -> dict[str, str]:
    """The blocks of a file, each begun by a line `-- name --`."""
    _, *parts = _BLOCK.split(source)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def translated(text: str, dialect: Dialect) -> str:
    """A block as its database wants it: without comments and shorthand."""
    plain = _expanded(text, dialect)
    return _PLACEHOLDER.sub(r"%(\1)s", plain) if dialect is Dialect.POSTGRES else plain


@cache
def _rules() -> Mapping[str, str]:
    """The rules of order, by name."""
    return named_blocks((files("penstock.events.store") / "sql" / "order.sql").read_text(encoding="utf-8"))


def _expanded(text: str, dialect: Dialect) -> str:
    return _MACRO.sub(lambda found: _spelled_out(found[1], dialect), _COMMENT.sub("", text)).strip()


def _spelled_out(shorthand: str, dialect: Dialect) -> str:
    if shorthand in _WORDS:
        return _WORDS[shorthand]
    *words, what = shorthand.split(" ")
    rule = _rules().get("_".join(words))
    if rule is not None:
        return _expanded(rule.replace("@", what), dialect)
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


_decode = msgspec.json.Decoder(dict[str, str]).decode
_MODE, _STATE, _HEADERS = (JOB_COLUMNS.index(name) for name in ("mode", "state", "headers"))
_FIELDS = tuple({"group_name": "group", "state": "status"}.get(name, name) for name in JOB_COLUMNS)


def job_of(row: Row) -> DispatchJob:
    """A row of `{job columns}`."""
    values = dict(zip(_FIELDS, row, strict=True))
    values["mode"] = MODE_OF[row[_MODE]]
    values["status"] = STATUS_OF[row[_STATE]]
    values["headers"] = mapping_of(row[_HEADERS])
    return DispatchJob(**values)


def event_of(row: Row) -> StoredEvent:
    """A row of the statement `event`."""
    event_id, tenant, source, external_id, kind, subject, time_ms, data, content_type, group, attributes, received = row
    return StoredEvent(
        id=event_id,
        tenant=tenant,
        source=source,
        external_id=external_id,
        type=kind,
        subject=subject,
        time_ms=time_ms,
        data=data,
        content_type=content_type,
        group=group,
        attributes=mapping_of(attributes),
        received_ms=received,
    )


def mapping_of(text: str) -> Mapping[str, str]:
    """Names and values kept as JSON."""
    return NO_ATTRIBUTES if text == "{}" else _decode(text)
