"""Check the rules of the source tree (docs/architecture.md): faces, unique names, no cycles, short listings.

Run by scripts/check-tree. Which package may know which is checked by import-linter (pyproject.toml).
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
MOST_ENTRIES = 20

# Others import from the `__init__` of these packages, and from nowhere else in them.
FACES = tuple(
    f"penstock.{name}"
    for name in (
        "broker", "client.types", "cluster", "console", "delivery", "engine", "events.accept", "events.api",
        "events.dispatch", "events.fan_out", "events.process", "events.statistics", "events.store", "http.api",
        "http.auth", "http.server", "ops.config", "ops.telemetry", "pubsub", "queues", "router", "sqs",
    )
)  # fmt: skip

# Imported by the name of the module all the same: each brings a driver, Spark or an optional extra, or is a program's
# client of the package's server.
BY_NAME = (
    "penstock.cluster.nodes", "penstock.cluster.redis_lease", "penstock.pubsub.nodes",
    "penstock.engine.store.postgres", "penstock.engine.store.sqlite",
    "penstock.events.dispatch.spark", "penstock.events.fan_out.spark", "penstock.events.fan_out.spark_task",
    "penstock.events.fan_out.columns",
    "penstock.events.store.postgres", "penstock.events.store.sqlite",
    "penstock.ops.telemetry.otlp_spans",
    "penstock.pubsub.wire",
    "penstock.queues.activemq", "penstock.queues.embedded", "penstock.queues.nats", "penstock.queues.sqs",
    "penstock.sqs.auth.signer", "penstock.sqs.client", "penstock.sqs.nodes",
)  # fmt: skip


class Module:
    """A module of the package, parsed."""

    def __init__(self, path: Path) -> None:
        parts = path.relative_to(SOURCE).with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)
        self.path = path
        self.tree = ast.parse(path.read_text(encoding="utf-8"))

    def imports(self, *, at_start: bool) -> Iterator[ast.ImportFrom]:
        """Yield the imports from the package; `at_start`: those that run when the module is loaded."""
        nodes = _loaded(self.tree.body) if at_start else ast.walk(self.tree)
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "penstock":
                yield node


def _loaded(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.If | ast.Try):
            yield from _loaded(node.body)
        yield node


def faces(modules: dict[str, Module]) -> Iterator[str]:
    """Yield imports that reach past a face, and names of faces that a module of the same name hides."""
    for module in modules.values():
        for node in module.imports(at_start=False):
            target = node.module or ""
            face = _face_of(target, module.name)
            if face is not None and target != face and not target.startswith(BY_NAME):
                yield f"{module.name} imports from {target}: import from {face}, which exports what others use"
        if module.is_package:
            exported = {alias.asname or alias.name for node in module.imports(at_start=True) for alias in node.names}
            for name in sorted(exported):
                if f"{module.name}.{name}" in modules:
                    yield f"{module.name} exports {name}, which its module of that name hides: rename one"


def _face_of(target: str, importer: str) -> str | None:
    for face in FACES:
        if _is_in(target, face) and not _is_in(importer, face):
            return face
    return None


def _is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def repeated_classes(modules: dict[str, Module]) -> Iterator[str]:
    """Yield public names of classes that several modules define."""
    places = defaultdict(list)
    for module in modules.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.name)
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"class {name} exists in {', '.join(sorted(found))}: tell them apart by their package's word"


def cycles(modules: dict[str, Module]) -> Iterator[str]:
    """Yield modules that cannot be loaded without themselves."""
    needs = {
        module.name: {
            name
            for node in module.imports(at_start=True)
            for alias in node.names
            for name in (f"{node.module}.{alias.name}", node.module)
            if name in modules and name != module.name
        }
        for module in modules.values()
        if not module.is_package
    }
    loaded = {name for name, module in modules.items() if module.is_package}
    while ready := {name for name, needed in needs.items() if needed <= loaded}:
        loaded |= ready
        needs = {name: needed for name, needed in needs.items() if name not in ready}
    if needs:
        yield f"these modules are in a cycle of imports, or above one: {', '.join(sorted(needs))}"


def large_folders() -> Iterator[str]:
    """Yield folders with too many entries to be read as a list."""
    for folder in sorted({path.parent for path in (SOURCE / "penstock").rglob("*.py")}):
        entries = [path for path in folder.iterdir() if path.name != "__pycache__"]
        if len(entries) > MOST_ENTRIES and folder.name != "penstock":
            yield f"{folder.relative_to(SOURCE)} has {len(entries)} entries: give it sub-folders"


def main() -> int:
    modules = {module.name: module for module in map(Module, sorted((SOURCE / "penstock").rglob("*.py")))}
    problems = [*faces(modules), *repeated_classes(modules), *cycles(modules), *large_folders()]
    for problem in problems:
        print(f"check_house: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
