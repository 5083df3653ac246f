"""The demo as `make demo` runs it, only smaller."""

import json

import pytest

from tests.rigs.penstock_process import run_penstock

pytestmark = pytest.mark.xdist_group("spark")


@pytest.mark.parametrize("engine", ["inline", pytest.param("spark", marks=pytest.mark.long)])
def test_the_demo_delivers_everything_in_order(engine: str) -> None:
    ran = run_penstock("demo", "--orders", "20", "--engine", engine, "--json", within_s=300)

    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    names = ["billing", "warehouse-slow", "partner-flaky", "mailer-limited"]
    assert [result["name"] for result in told["results"]] == names
    for result in told["results"]:
        assert result["delivered"] == 140
        assert result["in_order"]
        assert result["overlapping"] == 0
        assert result["complete"]
        assert result["signed"]
    times = told["times"]
    assert 0 < times["start_s"] < times["total_s"]
    assert 0 < times["deliveries_s"] < times["total_s"]
    if engine == "inline":
        assert told["audit"] is None
    else:
        assert told["audit"]["clean"]
        assert told["audit"]["counts"]["COMPLETED"] == 4 * 140


@pytest.mark.long
def test_the_demo_on_three_nodes_loses_nothing_when_one_is_killed(postgres_url: str) -> None:
    options = ("--nodes", "3", "--orders", "40", "--engine", "inline", "--database", postgres_url, "--json")
    ran = run_penstock("demo", *options, within_s=300)

    assert ran.returncode == 0, ran.stderr
    results = json.loads(ran.stdout)["results"]
    assert [result["delivered"] for result in results] == [280] * 4
    assert [result["overlapping"] for result in results] == [0] * 4
