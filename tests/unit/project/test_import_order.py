"""Imports go in one direction: the order of docs/architecture.md, from the bottom."""

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock

ROOT = Path(penstock.__file__).parent
EVENTS_ON_SPARK = "events on spark"
ORDER = (
    "domain", "edge", "ops.telemetry", "ops.config", "engine", "delivery", "client", "http", "broker", "queues",
    "cluster", "router", "pubsub", "sqs", "events", "events.statistics", "events.store", "events.fan_out",
    "events.process", "events.catalogue", "events.accept", "events.api", "events.dispatch", "spark", EVENTS_ON_SPARK,
    "history", "console", "ops", "testing", "tools", "cli", "__main__",
)  # fmt: skip


def unit_of(parts: tuple[str, ...]) -> str:
    """The entry of ORDER that a module belongs to."""
    if parts[0] == "events" and any(part.startswith("spark") for part in parts[1:]):
        return EVENTS_ON_SPARK
    inner = ".".join(parts[:2])
    return inner if inner in ORDER else parts[0]


def imports_of(tree: ast.AST) -> Iterator[str]:
    """The modules of penstock that are imported when the program runs, in functions too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("penstock."):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("penstock."))
        yield from imports_of(node)


def modules() -> Iterator[tuple[tuple[str, ...], ast.AST]]:
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts != ("__init__",):
            yield parts, ast.parse(path.read_text())


def test_no_module_imports_from_a_package_above_its_own() -> None:
    upward = [
        f"{'/'.join(parts)} imports {name}"
        for parts, tree in modules()
        for name in imports_of(tree)
        if ORDER.index(unit_of(tuple(name.split(".")[1:]))) > ORDER.index(unit_of(parts))
    ]
    assert upward == []
