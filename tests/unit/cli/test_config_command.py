import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.ops.config.text import as_reference

runner = CliRunner()


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_show_tells_value_and_source_with_passwords_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("penstock.toml").write_text("[http]\nport = 9000\n")
    monkeypatch.setenv("PENSTOCK_DATA__DATABASE", "postgresql://me:hunter2@db/x")
    lines = [line.split() for line in runner.invoke(app, ["config", "show"]).stdout.splitlines()]
    assert lines[0] == ["KEY", "VALUE", "SOURCE"]
    assert ["http.port", "9000", "penstock.toml"] in lines
    assert ["data.database", '"postgresql://me:***@db/x"', "PENSTOCK_DATA__DATABASE"] in lines
    assert ["node.id", "unset", "default"] in lines


def test_show_json_is_the_tree_with_passwords_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA__DATABASE", "postgresql://me:hunter2@db/x")
    tree = json.loads(runner.invoke(app, ["config", "show", "--json"]).stdout)
    assert tree["http"] == {"host": "127.0.0.1", "port": 8080}
    assert tree["data"]["database"] == "postgresql://me:***@db/x"


def test_check_says_valid() -> None:
    Path("mine.toml").write_text("[http]\nport = 9000\n")
    result = runner.invoke(app, ["--config", "mine.toml", "config", "check"])
    assert (result.exit_code, result.stdout) == (
        0,
        "the configuration is valid: 1 setting given, others default\n",
    )


def test_check_prints_every_problem_and_exits_2(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("penstock.toml").write_text("[http]\nport = 99999\nhots = 1\n")
    monkeypatch.setenv("PENSTOCK_NODE__ID", "x")
    result = runner.invoke(app, ["config", "check"])
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)


def test_a_named_file_that_is_missing_is_exit_code_2() -> None:
    result = runner.invoke(app, ["--config", "none.toml", "config", "show"])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: none.toml: cannot be read: No such file")


def test_init_writes_a_valid_file_and_does_not_overwrite_it() -> None:
    assert runner.invoke(app, ["config", "init"]).stdout == "wrote penstock.toml\n"
    assert tomllib.loads(Path("penstock.toml").read_text())["http"]["port"] == 8080
    assert runner.invoke(app, ["config", "check"]).exit_code == 0
    Path("penstock.toml").write_text("# mine\n")
    refused = runner.invoke(app, ["config", "init"])
    assert (refused.exit_code, refused.stderr) == (
        1,
        "error: penstock.toml exists; give another name, or --force to overwrite it\n",
    )
    assert Path("penstock.toml").read_text() == "# mine\n"
    assert runner.invoke(app, ["config", "init", "--force"]).exit_code == 0
    assert "[http]" in Path("penstock.toml").read_text()


def test_init_where_nothing_can_be_written_is_an_error() -> None:
    result = runner.invoke(app, ["config", "init", "none/penstock.toml"])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_reference_prints_the_page() -> None:
    assert runner.invoke(app, ["config", "reference"]).stdout == as_reference()
