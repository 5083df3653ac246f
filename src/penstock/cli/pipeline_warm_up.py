"""`penstock pipeline warm-up`: make Spark start faster on this machine."""

import typer

from penstock.cli.family import examples
from penstock.cli.options import load_config

WARM_UP_EXAMPLES = examples("penstock pipeline warm-up")


def warm_up(ctx: typer.Context) -> None:
    """Make Spark start faster on this machine, once for each version of Java and Spark.

    Keeps an archive of Spark's classes, 160 MB, in the user's cache (XDG_CACHE_HOME, else ~/.cache); takes a minute.
    """
    from penstock.spark.warm_up import warm_up

    load_config(ctx)
    archive = warm_up()
    typer.echo(f"wrote {archive} ({archive.stat().st_size / 2**20:.0f} MB)")
