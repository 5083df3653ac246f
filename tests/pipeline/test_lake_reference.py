"""The reference of the lake's tables is generated from their schema."""

import os
from pathlib import Path

from penstock.history.lake.schema import reference
from penstock.history.lake.views import VIEWS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "lake.md"
MARK = "<!-- generated: WRITE_DOCS=1 pytest tests/pipeline/test_lake_reference.py -->\n\n"


def generated() -> str:
    rows = "\n".join(f"| `{view.name}` | {view.text} |" for view in VIEWS)
    return f"{reference()}\n## Views\n\nOf `penstock pipeline sql`.\n\n| view | what |\n|---|---|\n{rows}\n"


def test_the_reference_is_that_of_the_schema() -> None:
    head, _, tables = PAGE.read_text(encoding="utf-8").partition(MARK)
    if os.environ.get("WRITE_DOCS"):
        PAGE.write_text(f"{head}{MARK}{generated()}", encoding="utf-8")
        return
    assert tables == generated()
