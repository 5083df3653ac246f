"""The documentation builds as a site, with every link checked, and what is generated is up to date."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.reference import as_markdown

ROOT = Path(__file__).parents[3]


def built(directory: Path, config: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(directory / "site")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    result = built(tmp_path, ROOT / "mkdocs.yml")
    assert result.returncode == 0, result.stderr
    assert "Ten minutes" in (tmp_path / "site" / "index.html").read_text()


@pytest.mark.parametrize("link", ["nowhere.md", "guarantees.md#nowhere", "../nowhere.txt"])
def test_a_broken_link_fails_the_build(tmp_path: Path, link: str) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# A\n\n[b]({link})\n")
    (docs / "guarantees.md").write_text("# B\n")
    text = (ROOT / "mkdocs.yml").read_text().partition("nav:\n  - ")[0]
    text = text.replace("docs_dir: docs", f"docs_dir: {docs}").replace("- scripts/", f"- {ROOT}/scripts/")
    config = tmp_path / "mkdocs.yml"
    config.write_text(text)
    assert built(tmp_path, config).returncode != 0


def test_the_reference_of_the_command_line_is_up_to_date() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text()
    assert page == as_markdown(), "run: penstock reference > docs/reference/cli.md"
