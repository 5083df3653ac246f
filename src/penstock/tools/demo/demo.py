"""The demo: all parts on one machine, the events of an order system, four subscribers, and Spark's audit at the end."""

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

TIMEOUT_S = 170.0
# An audit ignores deliveries that are younger than this.
_AUDIT_DELAY_S = 5.5
_FINDINGS = 1
_BATCH = 25
# Orders come in at this pace; many of them come faster, so that all are published within a minute.
_EVENTS_PER_S = 300
_PUBLISH_S = 60
_CONCURRENCY = 50
# Failures are short, so retries are quick; rate-limited deliveries spend no attempt.
_RETRIES_S = (0.2, 0.5, 1, 2, 3, 5, 5, 5, 5, 5)
# Override this machine's settings: the demo's parts are on loopback, and its client has no key.
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
    """The number of orders, the engine, and whether the parts keep running at the end."""

    orders: int
    engine: Engine
    keep: bool = False
    show_progress: bool = True


class DemoVerdict(msgspec.Struct, frozen=True):
    """The result of the audit; `failure` is set if it could not run."""

    clean: bool
    counts: dict[str, int] = {}
    totals: dict[str, int] = {}
    failure: str | None = None

    def summary(self) -> str:
        """Return the result as a sentence."""
        if self.failure is not None:
            return f"the audit could not run: {self.failure}"
        checked = ", ".join(f"{number} {name}" for name, number in self.counts.items())
        if self.clean:
            return f"Spark's audit: nothing lost, every key in order, no overlaps ({checked})"
        broken = ", ".join(f"{number} x {kind}" for kind, number in self.totals.items() if number)
        return f"Spark's audit found {broken} ({checked})"


class DemoTimes(msgspec.Struct, frozen=True):
    """How long it took: the start of all parts, from the first publish call to the last delivery, and everything."""

    start_s: float
    deliveries_s: float
    total_s: float


class DemoOutcome(msgspec.Struct, frozen=True):
    """The result of every subscriber and of the audit, which needs Spark."""

    results: list[Result]
    audit: DemoVerdict | None
    times: DemoTimes

    @property
    def ok(self) -> bool:
        """Whether everything arrived, in order and signed, and the audit agrees."""
        return all(result.ok for result in self.results) and (self.audit is None or self.audit.clean)

    def summary(self) -> str:
        """Return how much was delivered how fast, as a sentence."""
        delivered, times = sum(result.delivered for result in self.results), self.times
        per_s = delivered / times.deliveries_s
        return (
            f"{delivered:,} deliveries in {times.deliveries_s:.1f} s ({per_s:,.0f}/s); all parts were ready after "
            f"{times.start_s:.1f} s, and everything took {times.total_s:.1f} s"
        )


async def run_demo(plan: Plan, show: Callable[[DemoOutcome], None]) -> DemoOutcome:
    """Start all parts, publish, wait until all is delivered, check each subscriber's record, and show the outcome."""
    console = Console(stderr=True, quiet=not plan.show_progress)
    began_s = time.monotonic()
    subscribers = demo_subscribers()
    environment = {**os.environ, **_SETTINGS}
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        console.print(f"starting all parts on this machine, with {plan.engine}; data in {directory}")
        ports = Ports(http=0, sqs=0, pubsub=0, router=0, pipeline=0)
        parts = parts_of(Path(directory), ports, environment, plan.engine)
        async with AsyncExitStack() as stack:
            endpoints = [await stack.enter_async_context(HttpServer(each.app, "127.0.0.1", 0)) for each in subscribers]
            supervisor = await stack.enter_async_context(Supervisor(parts, console.print))
            urls = [endpoint.url for endpoint in endpoints]
            ready_s = time.monotonic()
            with Progress(*_COLUMNS, console=console) as progress:
                await _run_flow(supervisor.addresses["api"], subscribers, urls, plan.orders, progress)
            delivered_s = time.monotonic()
            verdict = None
            if plan.engine is Engine.SPARK:
                console.print("auditing the deliveries with Spark")
                await asyncio.sleep(_AUDIT_DELAY_S)
                verdict = await run_audit(Path(directory), environment)
            results = [Result.of(subscriber, plan.orders) for subscriber in subscribers]
            times = DemoTimes(ready_s - began_s, delivered_s - ready_s, time.monotonic() - began_s)
            outcome = DemoOutcome(results, verdict, times)
            show(outcome)
            if plan.keep:
                console.print(
                    f"all parts keep running; the web page is at {supervisor.addresses['api']}/ ; Ctrl-C stops them"
                )
                await _interrupted()
    return outcome


def demo_subscribers() -> list[DemoSubscriber]:
    """Return a fast, a slow, a flaky and a rate-limited subscriber."""
    return [
        DemoSubscriber("billing"),
        DemoSubscriber("warehouse-slow", work_s=0.05),
        DemoSubscriber("partner-flaky", failure_rate=0.05),
        DemoSubscriber("mailer-limited", per_s=250),
    ]


async def _run_flow(
    api_url: str, subscribers: list[DemoSubscriber], urls: list[str], orders: int, progress: Progress
) -> None:
    events = orders * len(STEPS)
    publishing = progress.add_task("published", total=events)
    bars = [progress.add_task(each.name, total=events) for each in subscribers]
    publisher = asyncio.to_thread(_publish, api_url, subscribers, urls, orders, progress, publishing)
    published = asyncio.create_task(publisher)
    deadline_s = time.monotonic() + TIMEOUT_S
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
            created = penstock.subscribe(
                subscriber.name, "orders:**", f"{url}/webhooks", retry_delays_s=_RETRIES_S, pool=subscriber.name
            )
            subscriber.secret = created.secret
        pause_s = _BATCH / max(_EVENTS_PER_S, orders * len(STEPS) / _PUBLISH_S)
        due_s = time.monotonic()
        for batch in in_batches(order_events(orders), _BATCH):
            penstock.publish_all(batch)
            progress.advance(bar, len(batch))
            due_s += pause_s
            time.sleep(max(0.0, due_s - time.monotonic()))


async def run_audit(directory: Path, environment: Mapping[str, str]) -> DemoVerdict:
    """Audit a data directory, as `penstock pipeline audit` does."""
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


async def _interrupted() -> None:
    """Wait for SIGINT or SIGTERM."""
    stop = asyncio.Event()
    with _signals(stop):
        await stop.wait()


@contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
