"""The parts of `penstock up`: what each is started with."""

import json
from operator import attrgetter
from pathlib import Path

import pytest

from penstock.cli.up import up
from penstock.ops.config import Config
from penstock.ops.part_process import SupervisedPart, log_line
from penstock.ops.parts import Engine, Ports, parts_of

DATA = Path("data")
AT = {"sqs": "http://127.0.0.1:1", "pubsub": "127.0.0.1:2", "api": "http://127.0.0.1:3"}
PORTS = Ports(http=1, sqs=2, pubsub=3, router=4, pipeline=5)


def parts(database: str = "") -> dict[str, SupervisedPart]:
    return {part.name: part for part in parts_of(DATA, PORTS, {}, Engine.SPARK, database=database)}


@pytest.mark.parametrize(
    ("part", "option", "setting"),
    [
        ("sqs", "sqs", "ports.sqs"),
        ("pubsub", "pubsub", "ports.pubsub"),
        ("api", "http", "http.port"),
        ("router", "router", "ports.router"),
        ("pipeline", "pipeline", "ports.pipeline"),
    ],
)
def test_how_a_port_is_chosen_names_an_option_and_a_setting_that_exist(part: str, option: str, setting: str) -> None:
    assert parts()[part].port_from == f"--{option} PORT or the setting {setting}"
    assert option in up.__annotations__
    attrgetter(setting)(Config())


def test_the_router_delivers_the_jobs_of_the_directory_only_if_they_are_there() -> None:
    assert {"--local", "--data"} <= set(parts()["router"].arguments(AT))
    elsewhere = parts("postgresql://db/penstock")["router"]
    assert "--local" in elsewhere.arguments(AT)
    assert "--data" not in elsewhere.arguments(AT)
    assert elsewhere.environment["PENSTOCK_DATA__DATABASE"] == "postgresql://db/penstock"


def test_a_line_of_a_log_names_its_part() -> None:
    assert json.loads(log_line("sqs", '{"level": "info", "message": "}{"}')) == {
        "part": "sqs",
        "level": "info",
        "message": "}{",
    }
    assert log_line("sqs", "Traceback") == "sqs: Traceback"
    assert log_line("sqs", '{"level": "info", "mess … (cut)') == 'sqs: {"level": "info", "mess … (cut)'
