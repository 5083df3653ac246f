"""`penstock demo`: the longest true flow Penstock has today, on its own data, in a minute."""

from typing import Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.output import AsJson, print_json, print_table

EXAMPLES = examples("penstock demo", "penstock demo --orders 100 --json")


def demo(
    orders: Annotated[int, typer.Option(min=1, max=100_000, help="How many orders; each has seven events.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Publish an order system's events and deliver them by webhook, in order per order.

    Starts everything as `penstock up` does, in a temporary directory, subscribes a quick, a slow, a flaky and a
    rate-limited endpoint of its own, and publishes the events of all orders. Exits with 0 only if every endpoint got
    every event, signed, and in order per order.
    """
    import uvloop
    from msgspec import to_builtins

    from penstock.demo.shop_demo import run_demo

    results = uvloop.run(run_demo(orders, show_progress=not as_json))
    if as_json:
        print_json(to_builtins(results))
    else:
        print_table(
            ["subscription", "delivered", "refused", "repeated", "in order", "complete", "signed", "p50 ms", "p99 ms"],
            [result.row() for result in results],
        )
    if not all(result.ok for result in results):
        typer.echo("error: an event is missing, out of order or unsigned, see the table", err=True)
        raise typer.Exit(1)
    if not as_json:
        typer.echo("every event reached every subscription, in order per order")
