"""The package as an archive, so that executors on other machines have the same code as the driver."""

import atexit
import os
import shutil
import tempfile
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

PACKAGE = "penstock"


def packed() -> Path:
    """This very penstock as an archive, which is there for as long as this process is: executors fetch it from here."""
    directory = tempfile.mkdtemp(prefix="penstock-package-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    archive = Path(directory, f"{PACKAGE}.zip")
    write_package(archive)
    return archive


def tell_driver(archive: Path) -> None:
    """Let the JVM that is started next know the archive: it runs the executors' Python too, to plan what they read."""
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(archive), *([known] if known else [])])


def write_package(archive: Path) -> None:
    """Write the package, its SQL and all, as a zip that Python imports from."""
    with ZipFile(archive, "w", ZIP_DEFLATED) as out:
        _add(out, files(PACKAGE), PACKAGE)


def _add(out: ZipFile, node: Traversable, name: str) -> None:
    if node.is_dir():
        for child in sorted(node.iterdir(), key=lambda entry: entry.name):
            if child.name != "__pycache__":
                _add(out, child, f"{name}/{child.name}")
    else:
        out.writestr(name, node.read_bytes())
