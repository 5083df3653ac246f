"""Check docs/specification against the tree: ids, modules, tests, counts and citations. Needs nothing but Python.

A rule is a list item that begins with its id, followed by an item with its evidence: modules, tests, and "not yet"
with the topic that is missing. `--table` prints the table of coverage for index.md.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs/specification"
INDEX = PAGES / "index.md"

_RULE = re.compile(r"^- \*\*([A-Z][A-Z0-9]*(?:-[A-Z0-9]+)*-\d+)\.\*\* ")
_MODULE = re.compile(r"`(src/penstock/[\w/]+(?:\.py|/))`")
_TEST = re.compile(r"`(tests/[\w/]+\.py)((?:::\w+)*)`")
_NOT_YET = re.compile(r"\*not yet: [^*]+\*", re.DOTALL)
# Documents that were never part of the repository.
_ABSENT = re.compile(r"\brulings? \d|\b[Ss]eeds? 00\d|\bseed's (?:numbers|text|table|defaults)\b")


class Rule(NamedTuple):
    """One rule of the specification, with what shows it."""

    id: str
    page: str
    text: str

    @property
    def kind(self) -> str:
        """How far the rule is met: shown, partly or missing."""
        proven = _MODULE.search(self.text) is not None and _TEST.search(self.text) is not None
        if _NOT_YET.search(self.text) is None:
            return "shown" if proven else "unproven"
        return "partly" if proven else "missing"


def rules() -> Iterator[Rule]:
    """Yield every rule of every page, in order."""
    for page in sorted(PAGES.glob("*.md")):
        found: list[str] = []
        for line in [*page.read_text().splitlines(), ""]:
            if found and (not line.strip() or _RULE.match(line)):
                yield _rule(page.name, found)
                found = []
            if found or _RULE.match(line):
                found.append(line)


def _rule(page: str, lines: list[str]) -> Rule:
    head = _RULE.match(lines[0])
    assert head is not None
    return Rule(head[1], page, "\n".join(lines))


def problems(found: list[Rule]) -> Iterator[str]:
    """Yield everything that is wrong."""
    for rule_id, times in Counter(rule.id for rule in found).items():
        if times > 1:
            yield f"the id {rule_id} is used {times} times"
    for rule in found:
        if rule.kind == "unproven":
            yield f"{rule.page}: {rule.id} names no module or no test; name them, or say what is not yet there"
    others = (
        ROOT / "docs/guarantees.md",
        *sorted((ROOT / "docs/explanation").glob("*.md")),
        *sorted(ROOT.glob("*.md")),
    )
    for page in (*sorted(PAGES.glob("*.md")), *others):
        yield from _broken_references(page)
    yield from _wrong_citations({rule.id for rule in found})
    for row in table(found):
        if row not in INDEX.read_text():
            yield f"index.md lacks the row {row}; `scripts/check_specification.py --table` prints all rows"


def _broken_references(page: Path) -> Iterator[str]:
    text = page.read_text()
    for module in _MODULE.findall(text):
        if not (ROOT / module).exists():
            yield f"{page.name}: there is no module {module}"
    for path, name in _TEST.findall(text):
        if not (ROOT / path).is_file():
            yield f"{page.name}: there is no file {path}"
        elif name and name.removeprefix("::") not in tests_in(ROOT / path):
            yield f"{page.name}: {path} has no test {name.removeprefix('::')}"


@cache
def tests_in(path: Path) -> frozenset[str]:
    """Return the names of a file's tests, as pytest writes them after the file."""
    names = _names(ast.parse(path.read_text()).body)
    return frozenset(name for name in names if name.rpartition("::")[2].startswith(("test_", "Test")))


def _names(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name, body=inner):
                yield name
                yield from (f"{name}::{each}" for each in _names(inner))
            case ast.Assign(targets=[ast.Name(id=name), *_]):
                yield name  # a state machine of Hypothesis: `TestQueue = QueueMachine.TestCase`


def _wrong_citations(known: set[str]) -> Iterator[str]:
    areas = "|".join(sorted({rule_id.partition("-")[0] for rule_id in known}))
    cited = re.compile(rf"\b(?:{areas})(?:-[A-Z]+)*-\d+\b")
    for path in _readable_files():
        text = path.read_text()
        for citation in cited.finditer(text):
            if citation[0] not in known:
                yield f"{_place(path, text, citation)}: {citation[0]} is not in docs/specification"
        for citation in _ABSENT.finditer(text):
            yield f"{_place(path, text, citation)}: {citation[0]!r} is a document that is not in the repository"


def _place(path: Path, text: str, found: re.Match[str]) -> str:
    return f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}"


def _readable_files() -> Iterator[Path]:
    for folder, pattern in (("src", "*.py"), ("src", "*.sql"), ("tests", "*.py"), ("docs", "*.md")):
        yield from sorted((ROOT / folder).rglob(pattern))
    yield from sorted(ROOT.glob("*.md"))


def table(found: list[Rule]) -> list[str]:
    """Return the rows of the table of coverage."""
    pages = sorted({rule.page for rule in found})
    rows = [(f"[{page.removesuffix('.md')}]({page})", [rule for rule in found if rule.page == page]) for page in pages]
    return [_row(name, of_page) for name, of_page in [*rows, ("all", found)]]


def _row(name: str, found: list[Rule]) -> str:
    kinds = Counter(rule.kind for rule in found)
    return f"| {name} | {len(found)} | {kinds['shown']} | {kinds['partly']} | {kinds['missing']} |"


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    found = list(rules())
    if sys.argv[1:] == ["--table"]:
        print("\n".join(table(found)))
        return 0
    wrong = list(problems(found))
    for each in wrong:
        print(f"check_specification: {each}", file=sys.stderr)
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main())
