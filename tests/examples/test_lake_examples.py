"""The examples over the lake, as a reader runs them."""

import ast
import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.examples.test_examples import EXAMPLES, run
from tests.rigs.lake import add_deliveries, delivery


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Thirty deliveries in two commits; two of a key changed places."""
    path = str(tmp_path_factory.mktemp("lake"))
    add_deliveries(path, [delivery(place) for place in range(20)])
    add_deliveries(path, [delivery(place) for place in range(20, 28)] + [
        delivery(28, event_id="e00034", key="key-1"), delivery(29, event_id="e00028", group_key="mail:key-1"),
    ])  # fmt: skip
    return path


def test_duckdb(lake: str) -> None:
    shown = "\n".join(run("lake_duckdb.py", LAKE=lake, KEY="key-2"))

    assert "billing" in shown
    assert "https://mail.example/hook" in shown
    assert "what key-2 got, in order" in shown
    assert shown.count("orders:created") == 10


def test_pandas(lake: str) -> None:
    shown = run("lake_pandas.py", LAKE=lake, DAY="2030-01-31")

    assert shown[0] == "30 attempts on 2030-01-31"
    assert any("billing" in line and "12:00:00" in line for line in shown)


def test_the_notebook_runs_from_the_first_cell_to_the_last(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((EXAMPLES / "lake.ipynb").read_text(encoding="utf-8"))
    monkeypatch.setenv("LAKE", lake)
    names: dict[str, object] = {}
    results = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            *statements, last = _parts("".join(cell["source"]))
            exec("".join(statements), names)
            results.append(eval(last, names))

    assert int(results[0].loc[0, "attempts"]) == 30
    assert sorted(results[1].subscription) == ["billing", "mail"]
    assert int(results[3].events.sum()) == 30
    assert results[-1] == (30, 20)


def _parts(source: str) -> list[str]:
    """The statements of a cell; the last one is an expression, whose value the notebook shows."""
    lines = source.splitlines(keepends=True)
    ends = [0, *(node.end_lineno or 0 for node in ast.parse(source).body)]
    return ["".join(lines[start:end]) for start, end in pairwise(ends)]


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads(Path(EXAMPLES / "lake.ipynb").read_text(encoding="utf-8"))["cells"]

    assert all(not cell.get("outputs") for cell in cells)
