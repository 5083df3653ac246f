"""The words between Python and the tables: named statements, stored numbers, and rows as values.

Statements are the named blocks of `sql/*.sql`, spelled out for one of the two databases. Statuses and modes are kept as
small numbers, the same in both databases, never renumbered.
"""

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum
from functools import cache
from importlib.resources import files

import msgspec

from penstock.domain.event import StoredEvent
from penstock.domain.job import Attempt, DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.message import NO_ATTRIBUTES
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode
from penstock.events.store.database import Row


class StoredState(IntEnum):
    """A status as it is stored. PENDING is two of them, so that each is found without reading the other."""

    WAITING = 0  # PENDING, not due yet
    READY = 1  # PENDING and due
    RESERVED = 2  # until 0.1: PENDING and being published; not used any more
    QUEUED = 3
    PROCESSING = 4
    COMPLETED = 5
    ERROR = 6
    CANCELLED = 7
    EXPIRED = 8


class StoredMode(IntEnum):
    """A dispatch mode as it is stored; the ordered ones are positive."""

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
    """Return the numbers that a status is stored as."""
    return [code for code, known in enumerate(STATUS_OF) if known is status]


_BLOCK = re.compile(r"^-- (\w+) --$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_MACRO = re.compile(r"\{([^{}]+)\}")
_PLACEHOLDER = re.compile(r"(?<![:\w]):([a-z]\w*)")

JOB_COLUMNS = (
    "id", "tenant", "type", "event_id", "subscription_id", "group_name", "group_key", "sequence", "mode", "state",
    "target", "pool", "payload", "content_type", "headers", "idempotency_key", "scheduled_for_ms", "due_at_ms",
    "expires_at_ms", "attempt_count", "delivery_count", "publish_round", "owner", "lease_until_ms", "last_error",
    "created_at_ms", "updated_at_ms", "finished_at_ms", "key_sequence",
)  # fmt: skip
_WORDS: dict[str, str] = {
    **{state.name: str(int(state)) for state in StoredState},
    **{mode.name: str(int(mode)) for mode in StoredMode},
    "job columns": ", ".join(JOB_COLUMNS),
    # A list shows the fate of jobs, not their payload.
    "listed columns": ", ".join("NULL AS payload" if name == "payload" else name for name in JOB_COLUMNS),
}


class Dialect(StrEnum):
    """The SQL of one of the two databases."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


# SQLite has one writer, so nothing needs a lock there; a list is passed to it as JSON.
_LOCKS = {
    "for update": "FOR UPDATE",
    "for share": "FOR SHARE",
    "skip locked": "FOR UPDATE SKIP LOCKED",
}


@cache
def queries(dialect: Dialect) -> Mapping[str, str]:
    """Return all statements of a database, by name."""
    directory = files("penstock.events.store") / "sql"
    names = ("shared", dialect, "replays", f"replays_{dialect}")
    texts = [(directory / f"{name}.sql").read_text(encoding="utf-8") for name in names]
    return {name: translated(text, dialect) for source in texts for name, text in named_blocks(source).items()}


def named_blocks(source: str) -> dict[str, str]:
    """Return the blocks of a file; a line `-- name --` begins each."""
    _, *parts = _BLOCK.split(source)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def translated(text: str, dialect: Dialect) -> str:
    """Return a block as its database takes it: without comments and macros."""
    plain = _expanded(text, dialect)
    return _PLACEHOLDER.sub(r"%(\1)s", plain) if dialect is Dialect.POSTGRES else plain


@cache
def _rules() -> Mapping[str, str]:
    """Return the rules of order, by name."""
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
    if verb == "numbered":
        rows = f"unnest(:{name}::text[]) WITH ORDINALITY AS asked (value, number)"
        return rows if postgres else f"(SELECT value, key AS number FROM json_each(:{name})) AS asked"
    if verb != "among":
        raise ValueError(f"{{{shorthand}}} is not a known macro")
    return f"= ANY(:{name})" if postgres else f"IN (SELECT value FROM json_each(:{name}))"


_decode = msgspec.json.Decoder(dict[str, str]).decode
_MODE, _STATE, _HEADERS = (JOB_COLUMNS.index(name) for name in ("mode", "state", "headers"))
_FIELDS = tuple({"group_name": "group", "state": "status"}.get(name, name) for name in JOB_COLUMNS)


def job_of(row: Row) -> DispatchJob:
    """Return the job of a row of `{job columns}`."""
    values = dict(zip(_FIELDS, row, strict=True))
    values["mode"] = MODE_OF[row[_MODE]]
    values["status"] = STATUS_OF[row[_STATE]]
    values["headers"] = mapping_of(row[_HEADERS])
    return DispatchJob(**values)


def attempt_of(row: Row) -> Attempt:
    """Return the attempt of a row: number, outcome, at_ms, duration_ms, status_code, response, error."""
    number, outcome, at_ms, duration_ms, status_code, response, error = row
    return Attempt(
        number=number,
        outcome=AttemptOutcome(outcome),
        at_ms=at_ms,
        duration_ms=duration_ms,
        status_code=status_code,
        response=response,
        error=error,
    )


def counts_of(rows: Iterable[Row]) -> dict[JobStatus, int]:
    """Return how many jobs have each status, from rows of state and number."""
    counts = dict.fromkeys(JobStatus, 0)
    for state, count in rows:
        counts[STATUS_OF[state]] += count
    return counts


def event_of(row: Row) -> StoredEvent:
    """Return the event of a row of the statement `event`."""
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
    """Return names and values that are stored as JSON."""
    return NO_ATTRIBUTES if text == "{}" else _decode(text)
