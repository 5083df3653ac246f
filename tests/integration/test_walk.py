"""`scripts/walk`: the files that an event crosses, as the documentation quotes them."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
WALK_S = 180


def test_the_walk_of_an_event_names_files_of_the_package_in_order_with_their_processes() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "walk", "--events", "3", "--json"],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=WALK_S,
    )
    assert done.returncode == 0, done.stderr
    walk = json.loads(done.stdout)
    paths = [file["path"] for file in walk["files"]]
    packages = [path.partition("/")[0] for path in paths]
    processes = {file["process"] for file in walk["files"]}

    assert all((PACKAGE / path).is_file() for path in paths)
    assert len(set(paths)) == len(paths) == walk["file_count"] > 50
    assert sorted(set(packages)) == walk["packages"]
    assert sum(before != after for before, after in pairwise(packages)) == walk["package_changes"]
    assert processes == {"serve dispatch", "serve sqs", "serve router"}
    assert walk["files"][0]["process"] == "serve dispatch"
