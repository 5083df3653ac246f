"""The tutorial for data engineers, block by block."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "data-engineer.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAIT_S = 600

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]


def test_every_block_does_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = []
    for block in BLOCK.findall(TUTORIAL.read_text(encoding="utf-8")):
        ran = subprocess.run(
            ["bash", "-e", "-c", block],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert ran.returncode == 0, f"{block}\n{ran.stdout}\n{ran.stderr}"
        printed.append(ran.stdout)
    day, audited, asked, duck, _, forgotten = printed
    assert "As it was: " in day
    assert "nothing was broken" in day
    assert re.search(r"OVERTAKEN +.* 1$", audited, re.MULTILINE)
    assert re.search(r"^billing .*\d:\d\d:\d\d$", audited, re.MULTILINE)
    assert re.search(r"^20\S+Z +counting +\d+", asked, re.MULTILINE)
    assert "what клиент 1 got, in order" in duck
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert re.search(r"^lake +deliveries +[1-9]\d* +0$", forgotten, re.MULTILINE)
