"""The specification names modules and tests that exist, and the code cites rules that exist; mistakes are found."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts/check_specification.py"

MODULE = "src/penstock/pool.py"
TESTS = "tests/test_pool.py"
INDEX = "docs/specification/index.md"
PAGE = "docs/specification/pools.md"
RULE = f"- **POOL-1.** A pool is bounded.\n    - `{MODULE}` ·\n      `{TESTS}::TestPool::test_bound`\n"
TREE = {
    MODULE: '"""Bounded (POOL-1)."""\n',
    TESTS: "class TestPool:\n    def test_bound(self): ...\n\n\nTestModel = Machine.TestCase\n",
    "docs/guarantees.md": f"`{TESTS}::TestModel`, `{TESTS}`\n",
    INDEX: "| [pools](pools.md) | 1 | 1 | 0 | 0 |\n| all | 1 | 1 | 0 | 0 |\n",
    PAGE: RULE,
}

Check = Callable[[dict[str, str]], list[str]]


@pytest.fixture
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_specification", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def check(checker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Check a small tree with some files changed."""
    for name, path in (("ROOT", "."), ("PAGES", "docs/specification"), ("INDEX", INDEX)):
        monkeypatch.setattr(checker, name, tmp_path / path)

    def problems(changes: dict[str, str]) -> list[str]:
        for path, text in (TREE | changes).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return list(checker.problems(list(checker.rules())))

    return problems


def test_the_specification_of_this_tree_holds(checker: ModuleType) -> None:
    assert list(checker.problems(list(checker.rules()))) == []


def test_a_small_tree_holds(check: Check) -> None:
    assert check({}) == []


def test_what_is_not_there_yet_is_counted(check: Check) -> None:
    missing = "- **POOL-2.** A pool is fair.\n    - *not yet: fair turns*\n"
    rows = "| [pools](pools.md) | 2 | 1 | 0 | 1 |\n| all | 2 | 1 | 0 | 1 |\n"
    assert check({PAGE: RULE + missing, INDEX: rows}) == []


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        (PAGE, RULE + RULE, "the id POOL-1 is used 2 times"),
        (PAGE, RULE.replace("pool.py` ·", "gone.py` ·"), "there is no module src/penstock/gone.py"),
        (PAGE, RULE.replace("test_pool.py", "test_gone.py"), "there is no file tests/test_gone.py"),
        (PAGE, RULE.replace("::test_bound", "::test_gone"), "has no test TestPool::test_gone"),
        (PAGE, f"- **POOL-1.** A pool is bounded.\n    - `{MODULE}`\n", "POOL-1 names no module or no test"),
        (INDEX, "| all | 7 | 7 | 0 | 0 |\n", "index.md lacks the row | all | 1 | 1 | 0 | 0 |"),
        ("docs/guarantees.md", f"`{TESTS}::test_gone`\n", "guarantees.md: tests/test_pool.py has no test test_gone"),
        (
            "docs/explanation/threats.md",
            f"`{TESTS}::test_gone`\n",
            "threats.md: tests/test_pool.py has no test test_gone",
        ),
        (MODULE, "\n# Bounded, see POOL-9.\n", "src/penstock/pool.py:2: POOL-9 is not in docs/specification"),
        (MODULE, "# Bounded (ruling" + " 12).\n", "is a document that is not in the repository"),
    ],
)
def test_a_mistake_is_found(check: Check, path: str, text: str, said: str) -> None:
    assert said in "\n".join(check({path: text}))
