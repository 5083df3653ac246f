"""Change one comparison, number or truth value at a time, and list the changes that no test notices.

    .venv/bin/python scripts/mutate.py --sample 100 --seed 7 src/penstock/domain src/penstock/router

Each change is made in a copy of `src`; the tests that concern its module run against the copy: those of its folder in
`tests/unit`, then those that the specification names beside it or that import it, where they need no other service.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
UNIT_TESTS = {"domain": "domain", "router": "router", "queues": "queues", "events": "events", "delivery": "delivery"}
WITHOUT_SERVICES = ("unit", "property")
NAMED = (*WITHOUT_SERVICES, "protocol")
PROMISES = "tests/unit/project/test_promised_numbers.py"
HISTORIES = "tests/simulation/test_router_simulation.py::test_every_promise_holds[(0, 10)]"
MOST_S = 120
OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change: the bytes of a file from `start` to `end` become `text`."""

    path: Path
    line: int
    start: int
    end: int
    text: str

    def changed(self) -> bytes:
        """Return the file with the change."""
        source = self.path.read_bytes()
        return source[: self.start] + self.text.encode() + source[self.end :]

    def __str__(self) -> str:
        before = self.path.read_bytes()[self.start : self.end].decode()
        return f"{self.path.relative_to(ROOT)}:{self.line}: {' '.join(before.split())}  ->  {self.text}"


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield the changes of a module."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _changeable(ast.parse(source)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        for text in _changes(node):
            yield Mutant(path, node.lineno, start, end, text)


def _changeable(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of a tree; not those in texts, whose places Python does not know, nor declarations."""
    declared = [getattr(tree, "annotation", None), getattr(tree, "returns", None), *getattr(tree, "decorator_list", ())]
    if isinstance(tree, ast.ClassDef):
        declared += tree.keywords
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.JoinedStr) or child in declared:
            continue
        if isinstance(child, ast.expr):
            yield child
        yield from _changeable(child)


def _changes(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield str(node.value + 1)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield ast.unparse(ast.Compare(node.left, [OTHER[type(node.ops[0])]()], node.comparators))
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"({ast.unparse(ast.BoolOp(other, node.values))})"


def tests_of(path: Path) -> list[list[str]]:
    """Return the tests that concern a module, the likeliest first."""
    module = path.relative_to(ROOT / "src").with_suffix("")
    own = [PROMISES, *(f"tests/unit/{folder}" for part, folder in UNIT_TESTS.items() if part in module.parts)]
    rules = [
        rule
        for page in (ROOT / "docs/specification").glob("*.md")
        for rule in page.read_text().split("\n- **")
        if f"src/{module}.py" in rule
    ]
    others = [
        str(test.relative_to(ROOT))
        for folder in NAMED
        for test in sorted((ROOT / "tests" / folder).rglob("test_*.py"))
        if str(test.relative_to(ROOT)) in "".join(rules)
        or (folder in WITHOUT_SERVICES and ".".join(module.parts) in test.read_text())
    ]
    further = [test for test in others if not any(test == each or test.startswith(f"{each}/") for each in own)]
    histories = [[HISTORIES]] if {"router", "domain"} & set(module.parts) else []
    return [tests for tests in (own, further, *histories) if tests]


def survives(mutant: Mutant) -> bool:
    """Return whether every test that concerns a changed module passes."""
    with tempfile.TemporaryDirectory() as copy:
        source = Path(copy, "src")
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("static"))
        (source / mutant.path.relative_to(ROOT / "src")).write_bytes(mutant.changed())
        environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "SEARCH_SEED": "1"}
        return all(_pass(tests, environment) for tests in tests_of(mutant.path))


def _pass(tests: list[str], environment: dict[str, str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=MOST_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return run.returncode == 0


def main() -> None:
    """Run a sample, the same for the same seed, and say what survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", type=Path, help="modules, or folders of them")
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    paths = [path for place in options.places for path in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
    every = [mutant for path in paths for mutant in mutants(path.resolve())]
    sample = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    survivors = 0
    for number, mutant in enumerate(sorted(sample), 1):
        if survives(mutant):
            survivors += 1
            print(mutant, flush=True)
        print(f"{number} of {len(sample)}, {survivors} survived", file=sys.stderr)
    print(f"{survivors} of {len(sample)} changes ({len(every)} are possible) were noticed by no test")


if __name__ == "__main__":
    main()
