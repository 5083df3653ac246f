"""`penstock demo`: the longest true flow Penstock has today, on its own data, in a minute."""

from typing import Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.output import AsJson, print_json, print_table

EXAMPLES = examples("penstock demo", "penstock demo --orders 200 --json")


def demo(
    orders: Annotated[int, typer.Option(min=1, max=100_000, help="How many orders; each has seven events.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Publish an order system's events and deliver them in order per order.

    A durable broker in a temporary directory takes the events of all orders; a quick, a slow, a flaky and a crashing
    subscriber work through them, and half-way the broker is stopped and started again from its disk. Exits with 0
    only if every subscriber got every event, in order per order.
    """
    import uvloop

    from penstock.demo.broker_demo import run_demo

    results = uvloop.run(run_demo(orders, show_progress=not as_json))
    if as_json:
        print_json([result.summary() for result in results])
    else:
        print_table(
            ["subscription", "delivered", "redelivered", "in order", "complete", "p50 ms", "p99 ms"],
            [result.row() for result in results],
        )
    if not all(result.ok for result in results):
        typer.echo("error: an event is missing or out of order, see the table", err=True)
        raise typer.Exit(1)
    if not as_json:
        typer.echo("every event reached every subscription, in order per order")
