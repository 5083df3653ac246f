import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.app import Level
from penstock.cli.app import app as penstock
from penstock.cli.failures import FailureGroup
from penstock.cli.options import Options, load_config
from penstock.domain.pointer import DispatchMode
from penstock.ops.config.tree import LogLevel

app = typer.Typer(cls=FailureGroup)


@app.command()
def level(ctx: typer.Context) -> None:
    """A command that logs, as a service would."""
    config = load_config(ctx)
    logging.getLogger("penstock.test").debug("seen")
    typer.echo(f"{config.log.level} {config.http.port}")


@app.callback()
def options(ctx: typer.Context) -> None:
    """Keeps the options given to `invoke`."""


@pytest.fixture(autouse=True)
def restore_logging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, before = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(before)
    logging.captureWarnings(False)


def test_a_command_gets_the_settings_and_logging_follows_them() -> None:
    Path("mine.toml").write_text('[http]\nport = 9000\n[log]\nlevel = "debug"\n')
    result = CliRunner().invoke(app, ["level"], obj=Options(config_file=Path("mine.toml")))
    assert (result.exit_code, result.stdout) == (0, "debug 9000\n")
    assert json.loads(result.stderr)["message"] == "seen"


def test_the_option_wins_over_the_setting() -> None:
    Path("penstock.toml").write_text('[log]\nlevel = "debug"\n')
    result = CliRunner().invoke(app, ["level"], obj=Options(log_level="error"))
    assert (result.stdout, result.stderr) == ("error 8080\n", "")


def walk(command: Any) -> Iterator[Any]:
    """Every option of every command."""
    yield from command.params
    for inner in getattr(command, "commands", {}).values():
        yield from walk(inner)


@pytest.mark.parametrize(
    "flag",
    [
        *("--json", "--yes", "--cursor", "--tenant", "--header", "--mode", "--memory", "--topics"),
        *("--master", "--conf", "--lake", "--once"),
    ],
)
def test_an_option_is_the_same_in_every_command_that_has_it(flag: str) -> None:
    declared = [option for option in walk(typer.main.get_command(penstock)) if flag in option.opts]
    assert len(declared) > 1
    assert len({(option.help, option.metavar, tuple(option.opts)) for option in declared}) == 1


@pytest.mark.parametrize("path", [("jobs", "create"), ("subscriptions", "create"), ("subscriptions", "update")])
def test_help_names_every_mode(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(penstock, [*path, "--help"]).output
    assert all(mode in shown for mode in DispatchMode)


def test_the_option_offers_what_the_setting_allows() -> None:
    assert list(map(str, Level)) == list(map(str, LogLevel))
