"""The demo: everything on one machine, an order system's events, and four subscribers of different tempers.

The last word on the demo: Spark's audit of what the database says happened.
"""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from penstock.client import Penstock
from penstock.http.server import HttpServer
from penstock.ops.parts import LOOPBACK, Engine, Ports, parts_of
from penstock.ops.supervisor import Supervisor
from penstock.tools.demo.subscriber import STEPS, DemoSubscriber, Result, in_batches, order_events

_FINDINGS = 1


class DemoVerdict(msgspec.Struct, frozen=True):
    """What the audit says; without a reason it was made, and `clean` is its answer."""

    clean: bool
    counts: dict[str, int] = {}
    totals: dict[str, int] = {}
    failure: str | None = None

    def told(self) -> str:
        """In a sentence."""
        if self.failure is not None:
            return f"the audit could not be made: {self.failure}"
        looked = ", ".join(f"{number} {name}" for name, number in self.counts.items())
        if self.clean:
            return f"Spark's audit: nothing lost, every key in order, none overlapping ({looked})"
        broken = ", ".join(f"{number} x {kind}" for kind, number in self.totals.items() if number)
        return f"Spark's audit found {broken} ({looked})"


async def audited(directory: Path, environment: Mapping[str, str]) -> DemoVerdict:
    """Audit everything in a data directory, as `penstock pipeline audit` does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock", "pipeline", "audit", "--data", str(directory), "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
    )
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode not in (0, _FINDINGS):
        last = errors.decode(errors="replace").strip().splitlines()
        return DemoVerdict(False, failure=last[-1] if last else f"it ended with code {process.returncode}")
    return msgspec.json.decode(output, type=DemoVerdict)


PATIENCE_S = 170.0
# What is younger than this, an audit leaves to the next one.
_SETTLED_S = 5.5
_BATCH = 500
_CONCURRENCY = 50
# Failures here last moments, so it is tried again soon; what is refused as too much spends no attempt.
_RETRIES_S = (0.2, 0.5, 1, 2, 3, 5, 5, 5, 5, 5)
# Whatever this machine is set to: the demo's own parts are on loopback, and its client has no key.
_SETTINGS = {
    "PENSTOCK_HTTP__HOST": "127.0.0.1",
    "PENSTOCK_EGRESS__ALLOW": LOOPBACK,
    "PENSTOCK_LOG__LEVEL": "error",
    "PENSTOCK_API__TOKEN": "",
    "PENSTOCK_API__KEYS": "",
    "PENSTOCK_ROUTER__API_TOKEN": "",
}
_COLUMNS = (TextColumn("{task.description:>16}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much is published, by what it is brought to the queue, and whether all of it stays up afterwards."""

    orders: int
    engine: Engine
    keep: bool = False
    show_progress: bool = True


class DemoOutcome(msgspec.Struct, frozen=True):
    """What every subscriber got, and what the audit says; without Spark there is none."""

    results: list[Result]
    audit: DemoVerdict | None

    @property
    def ok(self) -> bool:
        """Whether everything arrived, in order and signed, and the audit agrees."""
        return all(result.ok for result in self.results) and (self.audit is None or self.audit.clean)


def tempers() -> list[DemoSubscriber]:
    """A quick, a slow, a flaky and a rate-limited subscriber."""
    return [
        DemoSubscriber("billing"),
        DemoSubscriber("warehouse-slow", work_s=0.05),
        DemoSubscriber("partner-flaky", failure_rate=0.05),
        DemoSubscriber("mailer-limited", per_s=250),
    ]


async def run_demo(plan: Plan, show: Callable[[DemoOutcome], None]) -> DemoOutcome:
    """Start everything, publish, wait until all is delivered, judge each subscriber's record, and show that."""
    console = Console(stderr=True, quiet=not plan.show_progress)
    subscribers = tempers()
    environment = {**os.environ, **_SETTINGS}
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        console.print(f"starting everything on this machine, with {plan.engine}; data in {directory}")
        ports = Ports(http=0, sqs=0, pubsub=0, router=0, pipeline=0)
        parts = parts_of(Path(directory), ports, environment, plan.engine)
        async with AsyncExitStack() as stack:
            endpoints = [await stack.enter_async_context(HttpServer(each.app, "127.0.0.1", 0)) for each in subscribers]
            supervisor = await stack.enter_async_context(Supervisor(parts, console.print))
            urls = [endpoint.url for endpoint in endpoints]
            with Progress(*_COLUMNS, console=console) as progress:
                await _flow(supervisor.addresses["api"], subscribers, urls, plan.orders, progress)
            verdict = None
            if plan.engine is Engine.SPARK:
                console.print("auditing what was delivered, with Spark")
                await asyncio.sleep(_SETTLED_S)
                verdict = await audited(Path(directory), environment)
            results = [Result.of(subscriber, plan.orders) for subscriber in subscribers]
            outcome = DemoOutcome(results, verdict)
            show(outcome)
            if plan.keep:
                console.print(f"it stays up: the web page is at {supervisor.addresses['api']}/ ; Ctrl-C ends it")
                await _interrupted()
    return outcome


async def _interrupted() -> None:
    """Return at Ctrl-C, or when asked to end."""
    asked = asyncio.Event()
    with _signals(asked):
        await asked.wait()


@contextmanager
def _signals(asked: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _flow(
    api_url: str, subscribers: list[DemoSubscriber], urls: list[str], orders: int, progress: Progress
) -> None:
    events = orders * len(STEPS)
    publishing = progress.add_task("published", total=events)
    bars = [progress.add_task(each.name, total=events) for each in subscribers]
    publisher = asyncio.to_thread(_publish, api_url, subscribers, urls, orders, progress, publishing)
    published = asyncio.create_task(publisher)
    deadline_s = time.monotonic() + PATIENCE_S
    while not all(each.distinct == events for each in subscribers) and time.monotonic() < deadline_s:
        await asyncio.sleep(0.1)
        for each, bar in zip(subscribers, bars, strict=True):
            progress.update(bar, completed=each.distinct)
        if published.done() and published.exception() is not None:
            break
    await published


def _publish(
    api_url: str, subscribers: list[DemoSubscriber], urls: list[str], orders: int, progress: Progress, bar: TaskID
) -> None:
    with Penstock(api_url) as penstock:
        for subscriber, url in zip(subscribers, urls, strict=True):
            penstock.put_pool(subscriber.name, _CONCURRENCY)
            made = penstock.subscribe(
                subscriber.name, "orders:**", f"{url}/webhooks", retry_delays_s=_RETRIES_S, pool=subscriber.name
            )
            subscriber.secret = made.secret
        for batch in in_batches(order_events(orders, time.time()), _BATCH):
            penstock.publish_all(batch)
            progress.advance(bar, len(batch))
