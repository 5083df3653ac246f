"""The life of a job: the diagram in the docs is the table in the code, and the statements keep to both."""

import re
from pathlib import Path

import pytest

from penstock.domain.job_state import FINAL, TRANSITIONS, JobStatus
from penstock.domain.pointer import DispatchMode
from penstock.events.store.statements import (
    CODE_OF_MODE,
    MODE_OF,
    STATUS_OF,
    Dialect,
    StoredState,
    codes_of,
    named_blocks,
    queries,
)

ROOT = Path(__file__).parents[3]
DIAGRAM = ROOT / "docs" / "explanation" / "job-states.md"
SQL = ROOT / "src" / "penstock" / "events" / "store" / "sql"
STATEMENTS = [SQL / f"{name}.sql" for name in ("shared", "sqlite", "postgres")]

# `finish_jobs` takes its target from deliveries.py, which checks it against the table.
MOVE = re.compile(
    r"UPDATE jobs SET state = \{(\w+)\}.*?AND (?:jobs\.)?(?:state \+ 0|state) (?:= |IN \()([^)\n]*)", re.DOTALL
)


def test_the_diagram_shows_exactly_the_transitions_of_the_code() -> None:
    arrows = re.findall(r"^\s+(\w+) --> (\w+):", DIAGRAM.read_text(encoding="utf-8"), re.MULTILINE)

    assert {(JobStatus(source), JobStatus(target)) for source, target in arrows} == TRANSITIONS
    assert len(arrows) == len(TRANSITIONS)


def test_only_an_error_is_ever_left_again() -> None:
    assert {source for source, _ in TRANSITIONS} & FINAL == {JobStatus.ERROR}
    assert {source for source, to in TRANSITIONS if to is JobStatus.PROCESSING} == {JobStatus.QUEUED}


def test_every_guarded_statement_makes_only_moves_of_the_table() -> None:
    moves = {}
    texts = [block for path in STATEMENTS for block in named_blocks(path.read_text(encoding="utf-8")).items()]
    for name, text in texts:
        found = MOVE.search(text)
        if found is not None:
            guards = re.findall(r"\{(\w+)\}", found[2]) or ["WAITING", "READY", "QUEUED"]
            moves[name] = {(status(guard), status(found[1])) for guard in guards if status(guard) != status(found[1])}

    assert len(moves) >= 9
    for name, made in moves.items():
        assert made <= TRANSITIONS, name


def status(stored: str) -> JobStatus:
    return STATUS_OF[StoredState[stored]]


def test_stored_numbers_never_change() -> None:
    assert [state.name for state in StoredState] == [
        "WAITING", "READY", "RESERVED", "QUEUED", "PROCESSING", "COMPLETED", "ERROR", "CANCELLED", "EXPIRED",
    ]  # fmt: skip
    assert [CODE_OF_MODE[mode] for mode in DispatchMode] == [0, 1, 2]
    assert [MODE_OF[code] for code in range(3)] == list(DispatchMode)
    assert codes_of(JobStatus.PENDING) == [0, 1, 2]


@pytest.mark.parametrize("dialect", Dialect)
def test_every_shorthand_of_the_statements_is_spelled_out(dialect: Dialect) -> None:
    assert not [name for name, text in queries(dialect).items() if "{" in text or "--" in text]


def test_every_statement_is_used() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src" / "penstock").rglob("*.py"))
    names = {*queries(Dialect.SQLITE), *queries(Dialect.POSTGRES)}

    assert {name for name in names if f'"{name}"' not in source} == set()
