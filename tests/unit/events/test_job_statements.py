"""Every statement that the repository names exists in both databases and takes the values it is given."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.events.store.statements import Dialect, queries

REPOSITORY = Path(__file__).parents[3] / "src" / "penstock" / "events" / "store" / "repository"
PLACEHOLDERS = {Dialect.SQLITE: re.compile(r":([a-z]\w*)"), Dialect.POSTGRES: re.compile(r"%\((\w+)\)s")}


class Call(NamedTuple):
    """A statement as the code runs it; no values if they are not all written out."""

    statement: str
    values: frozenset[str] | None


def calls() -> Iterator[Call]:
    """Yield the calls of `tx.all`, `tx.first` and `tx.bulk` in the repository; mypy cannot check their values."""
    for path in sorted(REPOSITORY.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="tx"), attr="all" | "first" | "bulk" as kind),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    names = [keyword.arg for keyword in node.keywords]
                    written_out = kind != "bulk" and None not in names
                    yield Call(name, frozenset(filter(None, names)) if written_out else None)


@pytest.mark.parametrize("dialect", Dialect)
def test_statements_take_the_values_that_the_repository_gives(dialect: Dialect) -> None:
    found = list(calls())
    assert len(found) > 50
    for call in found:
        text = queries(dialect)[call.statement]
        if call.values is not None:
            assert set(PLACEHOLDERS[dialect].findall(text)) == call.values, call.statement
