"""What is published: the names of the distribution, and what its archives hold."""

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

from penstock import __version__

ROOT = Path(__file__).parents[3]
BASE = f"penstock_events-{__version__}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an sdist and a wheel of this tree."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return directory


def files_of_package() -> set[str]:
    """The files of the package in the tree, by their names below `src`."""
    files = (path for path in (ROOT / "src" / "penstock").rglob("*") if path.is_file())
    return {path.relative_to(ROOT / "src").as_posix() for path in files if "__pycache__" not in path.parts}


def test_an_sdist_holds_what_belongs_in_it_and_nothing_else(built: Path) -> None:
    with tarfile.open(built / f"{BASE}.tar.gz") as archive:
        names = [PurePosixPath(name).relative_to(BASE) for name in archive.getnames()]

    expected = {
        *("src", "docs", "examples", "ops"),
        *("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "PKG-INFO"),
        ".gitignore",  # hatchling adds it, whatever is configured
    }
    assert {name.parts[0] for name in names} == expected
    assert {str(name.relative_to("src")) for name in names if name.parts[0] == "src"} == files_of_package()


def test_a_wheel_holds_the_package_and_its_command(built: Path) -> None:
    with ZipFile(built / f"{BASE}-py3-none-any.whl") as archive:
        names = set(archive.namelist())
        entry_points = archive.read(f"{BASE}.dist-info/entry_points.txt").decode()

    assert {name for name in names if not name.startswith(f"{BASE}.dist-info/")} == files_of_package()
    assert "penstock = penstock.__main__:main" in entry_points


def test_advice_about_extras_names_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    texts = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "ops").rglob("*.service")]
    named = {match for path in texts for match in re.findall(r"\b(penstock[\w-]*)\[(\w+)\]", path.read_text())}

    assert project["name"] == "penstock-events"
    assert {extra for name, extra in named if name == "penstock-events"} == {"redis", "spark", "traces"}
    assert not {extra for name, extra in named if name != "penstock-events"} & extras.keys()
