"""Every metric that the dashboard and the alert rules name is exposed by a running part."""

import os
import re
import urllib.request
from pathlib import Path

import pytest

from penstock.domain.outcome import AttemptOutcome
from penstock.ops.telemetry.metrics import Metrics
from penstock.spark.metrics import BatchTimes, ProgressCollector
from penstock.spark.progress import QueryProgress
from tests.rigs.penstock_process import Machine, SchedulerProcess
from tests.services.pubsub_server import running
from tests.unit.project.test_ops_files import DASHBOARD, RULES, panels, rules

pytestmark = pytest.mark.xdist_group("up")

# Prometheus makes it by itself, for everything that it scrapes.
BY_PROMETHEUS = {"up"}
METRIC = re.compile(r"\b(?:penstock|sqs|pubsub|process)_[a-z_]+\b|\bup\b")


REFERENCE = Path(__file__).parents[2] / "docs/reference/metrics.md"
HEAD = """# Metrics

What every part tells Prometheus at `/metrics`. Made from the running parts: `WRITE_DOCS=1 pytest {test}`; the same test
keeps it true. All parts have `process_…` and `penstock_build_info` beside these. Dashboard and
alerts: [operate it](../howto/operate.md).
"""


def described(part: str, exposition: str) -> str:
    """The metrics of a part as a table."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE))
    rows = [
        f"| `{name}` | {kinds[name]} | {text.replace('|', chr(92) + '|')} |"
        for name, text in sorted(re.findall(r"^# HELP (\S+) (.*)$", exposition, re.MULTILINE))
        if not name.startswith("process_") and name != "penstock_build_info" and not name.endswith("_created")
    ]
    return "\n".join([f"## {part}", "", "| metric | kind | meaning |", "|---|---|---|", *rows, ""])


def exposed(exposition: str) -> set[str]:
    """The names of the samples that a part has, or will have when there is something to count."""
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE):
        names |= {f"{name}_{end}" for end in ("bucket", "count", "sum")} if kind == "histogram" else {name}
    return names


@pytest.fixture(scope="module")
def expositions(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What API, router, SQS server, Pub/Sub front, scheduler and pipeline expose."""
    directory = tmp_path_factory.mktemp("parts")
    found: dict[str, str] = {}
    for part in ("sqs", "api", "router"):
        with urllib.request.urlopen(f"{machine.addresses[part]}/metrics") as answer:
            found[part] = answer.read().decode()
    with running(directory, "--memory") as pubsub:
        found["pubsub"] = pubsub.get("/metrics")
    queue = f"{machine.addresses['sqs']}/000000000000/dispatch.fifo"
    scheduler = SchedulerProcess(directory, "scheduler", "--data", str(directory / "data"), "--queue", queue)
    scheduler.start()
    try:
        found["scheduler"] = scheduler.get("/metrics")
    finally:
        assert scheduler.stop() == 0
    found["pipeline"] = exposed_by_the_pipeline()
    return found


def exposed_by_the_pipeline() -> str:
    """What the pipeline's process exposes of its streaming jobs, without Spark."""
    made = Metrics("pipeline")
    BatchTimes(made)
    made.register(ProgressCollector([QueryProgress("fan-out")]))
    return made.exposition().decode()


@pytest.fixture(scope="module")
def metrics(expositions: dict[str, str]) -> set[str]:
    """The names of all of them."""
    return {name for exposition in expositions.values() for name in exposed(exposition)}


def test_the_reference_of_metrics_is_up_to_date(expositions: dict[str, str]) -> None:
    test = "tests/examples/test_ops_metrics.py"
    page = "\n".join([HEAD.format(test=test), *(described(part, text) for part, text in expositions.items())])
    if os.environ.get("WRITE_DOCS"):
        REFERENCE.write_text(page)
    assert REFERENCE.read_text() == page, f"run: WRITE_DOCS=1 pytest {test}"


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
