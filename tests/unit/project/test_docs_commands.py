"""Every `penstock` command that a page or a help text shows exists, with the options it is shown with."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli.app import app

ROOT = Path(__file__).parents[3]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
]
# `penstock ` at the beginning, or after a prompt, variables, or the opening of a substitution or of inline code.
SHOWN = re.compile(r"(?:^|`|\$\(|; |&& )\s*(?:[A-Z_]+=\S+ )*penstock ([^`\n]*)", re.MULTILINE)
END = re.compile(r"(?:^|\s)(?:#.*|\|\|?|&&?|;|[12]?>>?|<)(?:\s|$)|\s#|\)(?:\s|$)")
COMMANDS = typer.main.get_command(app)


def shown_in(text: str) -> Iterator[str]:
    """What follows `penstock` in each command, on one line."""
    for match in SHOWN.finditer(re.sub(r"\\\n\s*", "", text)):
        yield END.split(match[1], maxsplit=1)[0].strip()


def problem_of(command: str) -> str | None:
    """What is wrong with a command; None if nothing is."""
    place: Any = COMMANDS
    try:
        words = shlex.split(command)
    except ValueError as error:
        return str(error)
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
        elif word.startswith("-") and word != "-":
            name, has_value, _ = word.partition("=")
            option = next((each for each in place.params if name in (*each.opts, *each.secondary_opts)), None)
            if option is None and name not in ("--help", "-h", "--version"):
                return f"{place.name} has no {name}"
            takes_value = option is not None and not option.is_flag and not has_value
        elif getattr(place, "commands", None):
            if not re.fullmatch(r"[a-z-]+", word):
                return None  # "a|b|…" and the like, which name several
            if word not in place.commands:
                return f"there is no command {word!r}"
            place = place.commands[word]
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist(page: Path) -> None:
    found = {command: problem_of(command) for command in shown_in(page.read_text())}
    assert {command: problem for command, problem in found.items() if problem} == {}


def test_commands_are_found_and_mistakes_in_them_too() -> None:
    text = (
        "```sh\nA=b penstock up --data x   # all\npenstock publish a --key k \\\n  --dta 1 | cat\n```\n`penstock nope`"
    )
    found = [(command, problem_of(command)) for command in shown_in(text)]
    assert found == [
        ("up --data x", None),
        ("publish a --key k --dta 1", "publish has no --dta"),
        ("nope", "there is no command 'nope'"),
    ]
    assert sum(len(list(shown_in(page.read_text()))) for page in PAGES) > 200


def test_what_the_tutorial_creates_in_a_checkout_is_ignored_by_git() -> None:
    tutorial = (ROOT / "docs" / "tutorial" / "ten-minutes.md").read_text()
    directories = {f"/{name}/" for name in re.findall(r"--data \./(\S+)", tutorial)}
    files = {f"/{name}" for name in re.findall(r" > (\S+\.json)$", tutorial, re.MULTILINE)}

    assert directories
    assert files
    assert directories | files <= set((ROOT / ".gitignore").read_text().splitlines())
