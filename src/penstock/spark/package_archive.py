"""The package as a zip archive, so that executors on other machines run the same code as the driver."""

import atexit
import os
import shutil
import tempfile
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

PACKAGE = "penstock"


def package_archive() -> Path:
    """Return this installation of Penstock as an archive, which exists as long as this process."""
    directory = tempfile.mkdtemp(prefix="penstock-package-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    archive = Path(directory, f"{PACKAGE}.zip")
    write_package(archive)
    return archive


def add_to_python_path(archive: Path) -> None:
    """Add the archive to the Python path of the JVM that is started next, which also runs Python for executors."""
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(archive), *([known] if known else [])])


def write_package(archive: Path) -> None:
    """Write the package with its data files as a zip that Python can import."""
    with ZipFile(archive, "w", ZIP_DEFLATED) as out:
        _add(out, files(PACKAGE), PACKAGE)


def _add(out: ZipFile, node: Traversable, name: str) -> None:
    if node.is_dir():
        for child in sorted(node.iterdir(), key=lambda entry: entry.name):
            if child.name != "__pycache__":
                _add(out, child, f"{name}/{child.name}")
    else:
        out.writestr(name, node.read_bytes())
