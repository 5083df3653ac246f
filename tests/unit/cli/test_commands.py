import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from penstock import __version__
from penstock.cli import app as app_module
from penstock.cli.app import app, main
from penstock.domain.errors import Unavailable

runner = CliRunner()


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, (*path, name))


COMMANDS = list(walk(typer.main.get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(path) or "penstock")
def test_every_command_has_help_with_examples_that_name_it(path: tuple[str, ...]) -> None:
    result = runner.invoke(app, [*path, "--help"], prog_name="penstock")
    assert result.exit_code == 0
    about, _, examples = result.output.partition("Examples:\n")
    assert len(about.split("\n\n")[1].strip()) > 15
    lines = [line.strip() for line in examples.strip().splitlines()]
    assert lines
    assert all(re.match(r"([A-Z_]+=\S+ )?penstock ", line) and all(word in line for word in path) for line in lines)


def test_the_tree_was_walked() -> None:
    assert {("version",), ("doctor",), ("config", "show"), ("config", "init")} <= set(COMMANDS)


@pytest.mark.parametrize("path", [(), ("config",)])
def test_without_a_command_help_is_shown(path: tuple[str, ...]) -> None:
    assert "Usage: penstock" in runner.invoke(app, path, prog_name="penstock").output


def test_version() -> None:
    assert runner.invoke(app, ["--version"]).stdout == f"penstock {__version__}\n"
    assert runner.invoke(app, ["version"]).stdout.startswith(f"penstock {__version__}\npython 3.")
    assert json.loads(runner.invoke(app, ["version", "--json"]).stdout)["penstock"] == __version__


@pytest.mark.parametrize("args", [["nope"], ["version", "--nope"], ["--log-level", "loud", "version"]])
def test_wrong_usage_is_exit_code_2(args: list[str]) -> None:
    result = runner.invoke(app, args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage:" in result.stderr


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail() -> str:
        raise error

    monkeypatch.setattr("penstock.cli.admin.doctor.platform.platform", fail)


def test_an_error_is_one_line_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, Unavailable("the disk\nis away"))
    result = runner.invoke(app, ["version"])
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "error: the disk is away\n")


def test_debug_adds_the_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, Unavailable("the disk is away"))
    result = runner.invoke(app, ["--debug", "version"])
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("error: the disk is away\n")


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    result = runner.invoke(app, ["version"])
    assert (result.exit_code, result.stderr) == (130, "")


@pytest.mark.parametrize("debug", [True, False])
def test_a_bug_is_one_line_unless_debug(
    debug: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, ZeroDivisionError("oops"))
    monkeypatch.setattr(sys, "argv", ["penstock", *(["--debug"] if debug else []), "version"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer sets its own
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    err = capsys.readouterr().err
    assert "error: this is a bug in penstock: ZeroDivisionError: oops" in err
    assert ("Traceback" in err) is debug


def test_a_reader_that_leaves_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "penstock", "config", "reference"]
    ran = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert ran.stderr == ""


def test_starting_imports_nothing_heavy() -> None:
    program = "import sys, penstock.cli.app; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    heavy = {
        "asyncio",
        "msgspec",
        "prometheus_client",
        "psycopg",
        "pydantic",
        "pyspark",
        "rich",
        "sqlite3",
    }
    assert heavy.isdisjoint(ran.stdout.split())


def test_an_api_without_a_broker_loads_no_broker_client() -> None:
    program = "import sys, penstock.events.api, penstock.cli.serve.api; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert {"grpc", "google.pubsub_v1", "pyarrow", "pyspark"}.isdisjoint(ran.stdout.split())


def test_a_part_without_postgresql_does_not_load_its_driver() -> None:
    parts = "penstock.sqs, penstock.router, penstock.events.api, penstock.events.process"
    program = f"import sys, {parts}, penstock.cli.serve.stores, penstock.cli.serve.events_database; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert {"psycopg", "pydantic"}.isdisjoint(ran.stdout.split())


def test_completion_is_offered() -> None:
    assert app_module.app._add_completion
    assert "--install-completion" in runner.invoke(app, ["--help"]).output


@pytest.mark.parametrize(
    ("arguments", "code"), [(("audit", "--since", "24h"), 3), (("golden-day",), 1), (("sql", "select 1"), 1)]
)
def test_a_command_of_the_pipeline_without_spark_says_what_to_install(arguments: tuple[str, ...], code: int) -> None:
    program = "import sys; sys.modules['pyspark'] = None; from penstock.cli.app import main; main()"
    command = [sys.executable, "-c", program, "pipeline", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == code
    assert "pip install 'penstock-events[spark]'" in ran.stderr
    assert "bug" not in ran.stderr
    assert "--engine" not in ran.stderr  # these have no such option


@pytest.mark.parametrize("where", ["penstock.cli.status", "penstock.ops.doctor"])
def test_ctrl_c_while_it_starts_leaves_no_stack_trace(where: str) -> None:
    program = f"""
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == {where!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from penstock.__main__ import main
main()
"""
    command = [sys.executable, "-c", program, "doctor"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (130, "")
