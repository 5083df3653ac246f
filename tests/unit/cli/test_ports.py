"""Ports and hosts are settings, and options of the commands that go before them."""

import re
from operator import attrgetter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.cli.options import Options, given_or
from penstock.ops.config import Config, load

COMMANDS = [
    ("up",),
    ("serve", "sqs"),
    ("serve", "pubsub"),
    ("serve", "api"),
    ("serve", "dispatch"),
    ("serve", "router"),
    ("serve", "scheduler"),
    ("pipeline", "run"),
]
TOLD = re.compile(r"Else the setting ([a-z_.]+), (\d+) unless set\.")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_names_the_setting_of_a_port_and_its_default(command: tuple[str, ...]) -> None:
    shown = " ".join(CliRunner().invoke(app, [*command, "--help"], terminal_width=200).stdout.split())
    told = TOLD.findall(shown)
    assert told
    for setting, port in told:
        assert attrgetter(setting)(Config()) == int(port), setting


def test_an_option_goes_before_the_setting_even_if_it_is_nought() -> None:
    config = load(None, {"PENSTOCK_PORTS__SQS": "4566"})
    assert given_or(None, config.ports.sqs) == 4566
    assert given_or(0, config.ports.sqs) == 0


def test_what_was_given_before_the_command_goes_to_the_parts_too() -> None:
    options = Options(config_file=Path("a.toml"), log_level="debug", debug=True)
    assert options.as_arguments() == ["--config", "a.toml", "--log-level", "debug", "--debug"]
    assert Options().as_arguments() == []
