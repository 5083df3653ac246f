"""The demo of the broker: publish, deliver to four subscribers, restart from disk half-way."""

import asyncio
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from penstock.broker.async_broker import AsyncBroker
from penstock.broker.message import InternalMessage
from penstock.broker.options import SubscriptionOptions
from penstock.core.retry import RetryPolicy
from penstock.demo.orders import STEPS, in_batches, order_events
from penstock.demo.subscriber import Result, Subscriber
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.queue.store.sqlite import SqliteStore

_TOPIC = "orders"
_DEADLINE_S = 10
_BATCH = 100


async def run_demo(orders: int, *, show_progress: bool) -> list[Result]:
    """Run the flow and judge each subscriber's record."""
    subscribers = [
        Subscriber("billing"),
        Subscriber("warehouse-slow", work_s=0.005),
        Subscriber("partner-flaky", failure_rate=0.1),
        Subscriber("mailer-crashing", forgets_rate=0.002),
    ]
    events = orders * len(STEPS)
    console = Console(stderr=True, quiet=not show_progress)
    columns = (TextColumn("{task.description:>16}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        database = Path(directory) / "broker.db"
        console.print(f"a durable broker in {database}: {events} events of {orders} orders to 4 subscriptions")
        with Progress(*columns, console=console) as progress:
            publishing = progress.add_task("published", total=events)
            bars = {s.name: progress.add_task(s.name, total=events) for s in subscribers}
            first_half = await _publish_and_restart(database, subscribers, orders, progress, publishing, bars)
            console.print(
                f"broker stopped and started again from its disk: {first_half} deliveries done, the rest waits there"
            )
            await _deliver_rest(database, subscribers, events, progress, bars)
    return [Result.of(subscriber, orders) for subscriber in subscribers]


async def _publish_and_restart(
    database: Path,
    subscribers: list[Subscriber],
    orders: int,
    progress: Progress,
    publishing: TaskID,
    bars: dict[str, TaskID],
) -> int:
    """Publish everything while the subscribers work; stop as soon as it is published."""
    async with await AsyncBroker.open(SqliteStore(database), SystemClock(), process_ids()) as broker:
        await broker.register_topic(_TOPIC)
        for subscriber in subscribers:
            options = SubscriptionOptions(
                ack_deadline_seconds=_DEADLINE_S,
                message_ordering=True,
                retry_policy=RetryPolicy(minimum_backoff_s=0.05, maximum_backoff_s=1.0),
                max_messages=len(STEPS) * orders,
                max_bytes=1 << 30,
            )
            await broker.register_subscription(subscriber.name, _TOPIC, options)
        working = [asyncio.create_task(_work(broker, s, progress, bars[s.name])) for s in subscribers]
        for batch in in_batches(order_events(orders), _BATCH):
            await broker.publish(_TOPIC, batch)
            progress.advance(publishing, len(batch))
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    return sum(subscriber.distinct for subscriber in subscribers)


async def _deliver_rest(
    database: Path, subscribers: list[Subscriber], events: int, progress: Progress, bars: dict[str, TaskID]
) -> None:
    async with (
        await AsyncBroker.open(SqliteStore(database), SystemClock(), process_ids()) as broker,
        asyncio.TaskGroup() as group,
    ):
        for subscriber in subscribers:
            group.create_task(_work(broker, subscriber, progress, bars[subscriber.name], until=events))


async def _work(
    broker: AsyncBroker, subscriber: Subscriber, progress: Progress, bar: TaskID, until: int | None = None
) -> None:
    """Pull and answer until `until` different events were taken."""
    progress.update(bar, completed=subscriber.distinct)
    while until is None or subscriber.distinct < until:
        messages = await broker.pull(subscriber.name, _BATCH, wait_s=1.0)
        if messages and subscriber.work_s:
            await asyncio.sleep(subscriber.work_s * len(messages) / _BATCH)
        await _answer(broker, subscriber, messages)
        progress.update(bar, completed=subscriber.distinct)


async def _answer(broker: AsyncBroker, subscriber: Subscriber, messages: list[InternalMessage]) -> None:
    accepted: list[str] = []
    for message in messages:
        match subscriber.takes(message):
            case True:
                accepted.append(message.ack_id)
            case False:
                broker.nack(message.ack_id)
            case None:
                pass  # never answered: comes back when its deadline has passed
    await broker.ack(accepted)
