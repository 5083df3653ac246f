"""`penstock demo`: the whole product on sample data, in a minute or two."""

from typing import Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import AsJson
from penstock.cli.up import EngineChoice, EngineOption, chosen_engine

EXAMPLES = examples(
    "penstock demo", "penstock demo --orders 100 --json", "penstock demo --keep", "penstock demo --nodes 3"
)


def demo(
    orders: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="N", help="Orders to publish; each has seven events.")
    ] = 1000,
    engine: EngineOption = EngineChoice.AUTO,
    nodes: Annotated[
        int, typer.Option(min=1, max=9, metavar="N", help="Nodes on one PostgreSQL; of several, one is killed.")
    ] = 1,
    database: Annotated[
        str,
        typer.Option(
            metavar="URL", help="PostgreSQL server of several nodes; else one is started.", show_default=False
        ),
    ] = "",
    keep: Annotated[bool, typer.Option("--keep", help="Keep it running afterwards, for the web page.")] = False,
    as_json: AsJson = False,
) -> None:
    """Publish the events of a thousand orders, and watch them arrive in order.

    Starts everything as `penstock up` does, in a temporary directory, subscribes a quick, a slow, a flaky and a
    rate-limited endpoint of its own, publishes the events of all orders, and audits the deliveries with Spark. The exit
    code is 0 only if every endpoint got every event, signed and in order per order, and the audit is clean.

    With --nodes, several whole nodes share a PostgreSQL database, events are published to all of them by turns, and the
    node that leads is killed when half of them are published. Their engine is inline; Spark audits if it is installed.
    """
    import uvloop
    from msgspec import to_builtins

    from penstock.ops.parts import Engine
    from penstock.tools.demo.demo import DemoOutcome, Plan, run_demo

    def show(outcome: DemoOutcome) -> None:
        if as_json:
            print_json(to_builtins(outcome))
            return
        columns = [
            "subscription",
            "delivered",
            "refused",
            "repeated",
            "in order",
            "overlapping",
            "complete",
            "signed",
            "p50 ms",
            "p99 ms",
        ]
        print_table(columns, [result.row() for result in outcome.results])
        typer.echo(outcome.summary())
        if outcome.audit is not None:
            typer.echo(outcome.audit.summary())

    if nodes > 1 and engine is EngineChoice.SPARK:
        raise typer.BadParameter("--nodes runs with --engine inline")
    found = chosen_engine(engine)
    plan = Plan(
        orders=orders,
        engine=Engine.INLINE if nodes > 1 else found,
        keep=keep,
        show_progress=not as_json,
        nodes=nodes,
        database=database,
        audits=found is Engine.SPARK,
    )
    outcome = uvloop.run(run_demo(plan, show))
    if not outcome.ok:
        typer.echo(
            "error: an event is missing, out of order, overlapping or unsigned, or the audit found something", err=True
        )
        raise typer.Exit(1)
    if not as_json:
        typer.echo("every event reached every subscription, in order per order, one at a time")
