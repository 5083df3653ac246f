"""`penstock pipeline repartition`: a FIFO queue with another number of partitions."""

import os
from typing import Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import load_config
from penstock.cli.output import print_json
from penstock.cli.parameters import AsJson, Conf, Master
from penstock.cli.pipeline.options import session_settings
from penstock.cli.queue.connection import find_signer

EXAMPLES = examples(
    "penstock pipeline repartition --source http://127.0.0.1:9324/000000000000/orders.fifo "
    "--target orders-16.fifo --partitions 16",
    "penstock pipeline repartition --source http://127.0.0.1:9324/000000000000/orders.fifo "
    "--target orders-16.fifo --partitions 16 --commit",
)


def repartition(
    ctx: typer.Context,
    source: Annotated[str, typer.Option(metavar="QUEUE_URL", help="The queue to copy, on a Penstock server.")],
    target: Annotated[str, typer.Option(metavar="NAME", help="The new queue; created if it does not exist.")],
    partitions: Annotated[int, typer.Option(metavar="M", help="Partitions of the new queue: 1, 2, 4, 8, 16 or 32.")],
    commit: Annotated[
        bool, typer.Option("--commit", help="Delete the source once all of it is in the target.")
    ] = False,
    master: Master = "",
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Copy a FIFO queue into a new one with another number of partitions, in order per group, and verify the copy.

    Run it again to continue after a failure, or to copy messages that arrived since. The source stays until --commit.
    """
    from penstock.history.repartition.messages import QueueAccess
    from penstock.history.repartition.runner import Repartitioner
    from penstock.spark.session import spark_session

    if "://" not in source:
        raise typer.BadParameter("give the queue's URL", param_hint="--source")
    config = load_config(ctx)
    queue = QueueAccess(source.rstrip("/"), find_signer(source, os.environ))
    new = queue.beside(target)
    with spark_session(session_settings(config, master, conf, app_name="penstock-repartition")) as spark:
        done = Repartitioner(spark, queue, new, partitions).run(commit=commit)
    if as_json:
        print_json(
            {
                "target": new.url,
                "messages": done.messages,
                "groups": done.groups,
                "committed": done.committed,
            }
        )
        return
    typer.echo(f"{new.name} holds the {done.messages} messages of {done.groups} groups of {queue.name}, in order")
    if done.committed:
        typer.echo(f"{queue.name} is deleted: send to {new.url} and receive from it")
    else:
        typer.echo("the source is unchanged; --commit copies the messages that arrived since, and deletes it")
