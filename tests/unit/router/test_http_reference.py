"""The reference page names every route and every metric, and nothing else."""

import re
from pathlib import Path

from penstock.http.api.probes import PATHS
from penstock.router.monitoring.app import route_table
from penstock.router.monitoring.metrics import RouterCollector
from penstock.router.monitoring.test_endpoints import NAMES
from penstock.router.monitoring.warnings import Warnings
from penstock.router.pools.counts import RouterMetrics
from penstock.router.settings import RouterSettings
from penstock.testing.clock import VirtualClock
from tests.rigs.router_api import ServedApi
from tests.rigs.router_surface import FakeRouter

PAGE = (Path(__file__).parents[3] / "docs/reference/router-http.md").read_text()


def test_every_route_stands_in_the_page() -> None:
    documented = set(re.findall(r"^\| `([A-Z]+ /[^`?]*)` \|", PAGE, re.MULTILINE))
    routes = route_table(ServedApi(RouterSettings()).parts()).routes

    assert documented == {f"{route.method} {route.path}" for route in routes} | {f"GET {path}" for path in PATHS}


def test_every_metric_stands_in_the_page() -> None:
    table = PAGE.partition("## Metrics")[2]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+?)(?:_total)?`", row)}
    collector = RouterCollector(FakeRouter(), RouterMetrics(), Warnings(VirtualClock()))

    assert documented == {metric.name.removeprefix("penstock_router_") for metric in collector.collect()}


def test_every_test_endpoint_stands_in_the_page() -> None:
    table = PAGE.partition("| name | answer |")[2].partition("## Rules")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)

    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == set(NAMES)
