"""What a package exports is what its users get, in whatever order modules are imported."""

from pathlib import Path

import penstock

ROOT = Path(penstock.__file__).parent


def exports(face: Path) -> set[str]:
    name = ".".join(("penstock", *face.parent.relative_to(ROOT).parts))
    module = __import__(name, fromlist=["__all__"])
    return set(getattr(module, "__all__", ()))


def test_no_exported_name_is_also_a_module_of_the_package() -> None:
    # The import of such a module replaces the exported name by the module.
    shadowed = [
        f"{face.parent.relative_to(ROOT)}: {path.name}"
        for face in ROOT.rglob("__init__.py")
        for path in face.parent.iterdir()
        if path.stem in exports(face) and (path.suffix == ".py" or (path / "__init__.py").exists())
    ]
    assert shadowed == []
