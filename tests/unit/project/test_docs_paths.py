"""The documentation names files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# The specification has a check of its own; decisions keep the names of their day.
PAGES = [
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md"))
    if path.parent.name not in ("specification", "decisions")
]
NAMED = re.compile(r"`((?:[a-z_0-9]+/)+[a-zA-Z_0-9-]+(?:/|\.(?:py|sql|sh|json|toml|md)))(?:::\w+)*`")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LISTED = re.compile(r"^    ([a-z_/0-9]+\.py)$", re.MULTILINE)
PLACES = (ROOT, ROOT / "src", ROOT / "src/penstock")


def exists(name: str) -> bool:
    return any((place / name).exists() for place in PLACES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_files_that_exist(page: Path) -> None:
    text = CODE.sub("", page.read_text())
    assert [name for name in NAMED.findall(text) if not exists(name)] == []


def test_the_files_of_the_walk_exist() -> None:
    listed = LISTED.findall((ROOT / "docs/architecture.md").read_text())
    assert len(listed) > 50
    assert [name for name in listed if not exists(name)] == []
