"""Every metric that the dashboard and the alert rules name is exposed by a running part."""

import re
import urllib.request

import pytest

from penstock.jobs.model_attempt import AttemptOutcome
from tests.protocol.test_up import Machine
from tests.services.pubsub_server import running
from tests.services.scheduler_process import SchedulerProcess
from tests.unit.test_ops_files import DASHBOARD, RULES, panels, rules

pytestmark = pytest.mark.xdist_group("up")

# Prometheus makes it by itself, for everything that it scrapes.
BY_PROMETHEUS = {"up"}
METRIC = re.compile(r"\b(?:penstock|sqs|pubsub|process)_[a-z_]+\b|\bup\b")


def exposed(exposition: str) -> set[str]:
    """The names of the samples that a part has, or will have when there is something to count."""
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE):
        names |= {f"{name}_{end}" for end in ("bucket", "count", "sum")} if kind == "histogram" else {name}
    return names


@pytest.fixture(scope="module")
def metrics(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What API, router, SQS server, Pub/Sub front and scheduler expose."""
    directory = tmp_path_factory.mktemp("parts")
    found: set[str] = set()
    for part in ("sqs", "api", "router"):
        with urllib.request.urlopen(f"{machine.addresses[part]}/metrics") as answer:
            found |= exposed(answer.read().decode())
    with running(directory, "--memory") as pubsub:
        found |= exposed(pubsub.get("/metrics"))
    queue = f"{machine.addresses['sqs']}/000000000000/dispatch.fifo"
    scheduler = SchedulerProcess(directory, "scheduler", "--data", str(directory / "data"), "--queue", queue)
    scheduler.start()
    try:
        found |= exposed(scheduler.get("/metrics"))
    finally:
        assert scheduler.stop() == 0
    return found


def named(expressions: list[str]) -> set[str]:
    # Labels and their values look like names, so they go first.
    plain = [re.sub(r"\{[^}]*\}", "", expression) for expression in expressions]
    return {name for expression in plain for name in METRIC.findall(expression)} - BY_PROMETHEUS


def test_the_dashboard_shows_metrics_that_exist(metrics: set[str]) -> None:
    shown = named([target["expr"] for panel in panels() for target in panel["targets"]])
    assert len(shown) > 20
    assert shown - metrics == set(), f"{DASHBOARD.name} names metrics that no part exposes"


def test_the_alerts_ask_for_metrics_that_exist(metrics: set[str]) -> None:
    asked = named([rule["expr"] for rule in rules()])
    assert len(asked) > 10
    assert asked - metrics == set(), f"{RULES.name} names metrics that no part exposes"


def test_a_metric_that_no_part_exposes_is_found(metrics: set[str]) -> None:
    assert named(['rate(penstock_made_up_total{part="up"}[5m])']) - metrics == {"penstock_made_up_total"}


def test_the_outcomes_of_deliveries_are_those_of_the_code() -> None:
    found = re.findall(r'outcome[!=~]+\\?"([A-Z|]+)', DASHBOARD.read_text() + RULES.read_text())
    assert {name for names in found for name in names.split("|")} == {outcome.value for outcome in AttemptOutcome}
