"""The parts of `penstock up`: what each is started with."""

from operator import attrgetter
from pathlib import Path

import pytest

from penstock.cli.up import up
from penstock.ops.config import Config
from penstock.ops.part_process import SupervisedPart
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
    assert "--data" in parts()["router"].arguments(AT)
    assert "--data" not in parts("postgresql://db/penstock")["router"].arguments(AT)
