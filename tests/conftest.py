"""Fixtures and settings of all tests."""

import gc
import signal
from collections.abc import Sequence
from functools import cache
from time import monotonic
from typing import Any

import pytest
import typer.testing
from typer.main import get_command

from tests.rigs.rewriting import rewrite_share
from tests.rigs.search import load_profile

# NATS's first: others import from it, and pytest rewrites assertions only before a module is imported.
pytest_plugins = [
    "tests.services.nats",
    "tests.services.activemq",
    "tests.services.moto_server",
    "tests.services.postgres",
    "tests.services.redis",
    "tests.services.shared_machine",
    "tests.sources.servers",
    "tests.rigs.job_database",
]

load_profile()

# Of the long tests, what only they show comes first: Spark end to end, crashes, clusters.
FIRST = (
    "tests/faults/",
    "tests/protocol/",
    "tests/integration/",
    "tests/pipeline/test_dispatch_crash.py",
    "tests/pipeline/test_packaging.py",
    "tests/examples/",
    "tests/pipeline/test_supervision_run.py",
    "tests/pipeline/test_golden_day.py",
)
# Fixtures of the session that start a server, which tests of several modules share: the name of its group.
SHARED = {
    **dict.fromkeys(("sqs", "memory_sqs", "sqlite_sqs", "postgres_sqs", "secured_sqs"), "sqs servers"),
    **dict.fromkeys(("memory_clients", "sqlite_clients", "memory_pubsub", "sqlite_pubsub"), "pubsub servers"),
}
STARTED_S = monotonic()
COLLECTED = pytest.StashKey[Sequence[str]]()


# Building the tree of commands takes 20 ms, longer than most commands run; Typer's runner does it for each call.
vars(typer.testing)["_get_command"] = cache(get_command)

# Modules and collected tests live to the end: no collection of garbage has to look at them.
gc.disable()

# A shell that starts the tests in the background lets them ignore Ctrl-C. What they start would inherit that, and some
# of it is stopped by Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--time-box", type=float, metavar="SECONDS", help="start no test later than this")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    rewrite_share(session.config)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let one worker run the tests that share a server, so that it is started once."""
    if item.get_closest_marker("xdist_group") is None and (group := _group(item)) is not None:
        item.add_marker(pytest.mark.xdist_group(group))


def _group(item: pytest.Item) -> str | None:
    fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    if any(definitions[-1].scope == "module" for definitions in fixtures.values()):
        return item.path.stem
    return next((SHARED[name] for name in fixtures if name in SHARED), None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the groups of `--dist loadgroup`; in a time box, put the most telling tests first."""
    for item in items:
        _keep_group(item)
    if config.getoption("--time-box") is not None:
        items.sort(key=lambda item: [not item.nodeid.startswith(path) for path in FIRST])


def _keep_group(item: pytest.Item) -> None:
    """Give a test the name with its group that pytest-xdist 3.8 writes where pytest 9.2 no longer reads it.

    Without it each worker starts Spark, a browser and every broker.
    """
    named: str = getattr(item, "_nodeid", item.nodeid)
    if named != item.nodeid:
        item._id = type(item.id).parse(named)


def pytest_collection_finish() -> None:
    """Collect garbage from here on."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what would start after the end of the time box."""
    box_s = item.config.getoption("--time-box")
    if box_s is not None and monotonic() - STARTED_S > box_s:
        pytest.skip("the time box had ended")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Sequence[str]) -> None:
    node.config.stash[COLLECTED] = ids


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Of a time box, say what ran and what did not."""
    if config.getoption("--time-box") is None:
        return
    stats = terminalreporter.stats
    ran = {report.nodeid for outcome in ("passed", "failed", "error") for report in stats.get(outcome, [])}
    collected = config.stash.get(COLLECTED, ())
    left = [name for name in collected if name not in ran]
    terminalreporter.section("time box")
    terminalreporter.line(f"{len(ran)} of {len(collected)} tests ran; not run: {' '.join(left) or 'none'}")
