"""The demo: all parts on one machine, the events of an order system, four subscribers, and Spark's audit at the end."""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.client import Event, Penstock
from penstock.domain.errors import Unavailable
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
    """The number of orders, the engine, the nodes, and whether the parts keep running at the end."""

    orders: int
    engine: Engine
    keep: bool = False
    show_progress: bool = True
    nodes: int = 1
    database: str = ""
    """The PostgreSQL server of several nodes; empty: one that is started for them."""
    audits: bool = False


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
        async with AsyncExitStack() as stack:
            endpoints = [await stack.enter_async_context(HttpServer(each.app, "127.0.0.1", 0)) for each in subscribers]
            stage = await stack.enter_async_context(_stage(plan, Path(directory), environment, console))
            urls = [endpoint.url for endpoint in endpoints]
            ready_s = time.monotonic()
            with Progress(*_COLUMNS, console=console) as progress:
                await _run_flow(stage, subscribers, urls, plan.orders, progress)
            delivered_s = time.monotonic()
            verdict = None
            if plan.audits:
                console.print("auditing the deliveries with Spark")
                await asyncio.sleep(_AUDIT_DELAY_S)
                verdict = await run_audit(stage.audited, environment)
            results = [Result.of(subscriber, plan.orders) for subscriber in subscribers]
            times = DemoTimes(ready_s - began_s, delivered_s - ready_s, time.monotonic() - began_s)
            outcome = DemoOutcome(results, verdict, times)
            show(outcome)
            if plan.keep:
                console.print(f"all parts keep running; the web page is at {stage.api_urls[-1]}/ ; Ctrl-C stops them")
                await _interrupted()
    return outcome


class DemoStage(msgspec.Struct, frozen=True):
    """What the demo runs on: the APIs, what an audit reads, and what happens half-way."""

    api_urls: list[str]
    audited: tuple[str, str]
    half_way: Callable[[], None] = lambda: None


@asynccontextmanager
async def _stage(
    plan: Plan, directory: Path, environment: Mapping[str, str], console: Console
) -> AsyncIterator[DemoStage]:
    """Start the parts of this machine, or several nodes of which one is killed half-way."""
    if plan.nodes == 1:
        console.print(f"starting all parts on this machine, with {plan.engine}; data in {directory}")
        ports = Ports(http=0, sqs=0, pubsub=0, router=0, pipeline=0)
        parts = parts_of(directory, ports, environment, plan.engine)
        async with Supervisor(parts, console.print) as supervisor:
            yield DemoStage([supervisor.addresses["api"]], ("--data", str(directory)))
        return
    from penstock.tools.demo.nodes import demo_nodes

    console.print(f"starting {plan.nodes} nodes on one PostgreSQL database")
    async with demo_nodes(plan.nodes, directory, plan.database, environment, console.print) as nodes:

        def kill() -> None:
            console.print("killing node-0, which leads: the others take over")
            nodes.kill_first()

        yield DemoStage(nodes.api_urls, ("--database", nodes.database), kill)


def demo_subscribers() -> list[DemoSubscriber]:
    """Return a fast, a slow, a flaky and a rate-limited subscriber."""
    return [
        DemoSubscriber("billing"),
        DemoSubscriber("warehouse-slow", work_s=0.05),
        DemoSubscriber("partner-flaky", failure_rate=0.05),
        DemoSubscriber("mailer-limited", per_s=250),
    ]


async def _run_flow(
    stage: DemoStage, subscribers: list[DemoSubscriber], urls: list[str], orders: int, progress: Progress
) -> None:
    events = orders * len(STEPS)
    publishing = progress.add_task("published", total=events)
    bars = [progress.add_task(each.name, total=events) for each in subscribers]
    loop = asyncio.get_running_loop()

    def on_batch(published: int, size: int) -> None:
        progress.advance(publishing, size)
        if published < events / 2 <= published + size:
            loop.call_soon_threadsafe(stage.half_way)

    publisher = asyncio.to_thread(_publish, stage.api_urls, subscribers, urls, orders, on_batch)
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
    api_urls: list[str],
    subscribers: list[DemoSubscriber],
    urls: list[str],
    orders: int,
    on_batch: Callable[[int, int], None],
) -> None:
    """Subscribe, and publish to all APIs by turns; one that does not answer is left out from then on."""
    with ExitStack() as stack:
        apis = [stack.enter_context(Penstock(url)) for url in api_urls]
        for subscriber, url in zip(subscribers, urls, strict=True):
            apis[0].put_pool(subscriber.name, _CONCURRENCY)
            created = apis[0].subscribe(
                subscriber.name, "orders:**", f"{url}/webhooks", retry_delays_s=_RETRIES_S, pool=subscriber.name
            )
            subscriber.secret = created.secret
        pause_s = _BATCH / max(_EVENTS_PER_S, orders * len(STEPS) / _PUBLISH_S)
        due_s, published = time.monotonic(), 0
        for number, batch in enumerate(in_batches(order_events(orders), _BATCH)):
            _publish_batch(apis, number, batch)
            on_batch(published, len(batch))
            published += len(batch)
            due_s += pause_s
            time.sleep(max(0.0, due_s - time.monotonic()))


def _publish_batch(apis: list[Penstock], number: int, batch: list[Event]) -> None:
    """Publish a batch to the next API. Events have ids, so those that were stored already are not stored twice."""
    while True:
        api = apis[number % len(apis)]
        try:
            api.publish_all(batch)
            return
        except Unavailable:
            if len(apis) == 1:
                raise
            apis.remove(api)


async def run_audit(audited: tuple[str, str], environment: Mapping[str, str]) -> DemoVerdict:
    """Audit a data directory or a database, as `penstock pipeline audit` does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock", "pipeline", "audit", *audited, "--json"),
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
