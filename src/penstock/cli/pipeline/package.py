"""`penstock pipeline package`: the archive that executors need.

`penstock pipeline warm-up`: make Spark start faster on this machine.
"""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import load_config

EXAMPLES = examples("penstock pipeline package --output penstock.zip")


def package(
    output: Annotated[Path, typer.Option(help="Where to write.", metavar="FILE")] = Path("penstock.zip"),
) -> None:
    """Write penstock as an archive for executors that have it not: spark-submit --py-files penstock.zip.

    The commands here do it by themselves; this is for images, and for clusters that fetch it from their own storage.
    """
    from penstock.domain.errors import Unavailable
    from penstock.spark.packaging import write_package

    try:
        write_package(output)
    except OSError as error:
        raise Unavailable(
            f"cannot write {output}: {error.strerror or error}; give a file that can be written"
        ) from error
    typer.echo(f"wrote {output} ({output.stat().st_size / 2**10:.0f} KB)")


WARM_UP_EXAMPLES = examples("penstock pipeline warm-up")


def warm_up(ctx: typer.Context) -> None:
    """Make Spark start faster on this machine, once for each version of Java and Spark.

    Keeps an archive of Spark's classes, 160 MB, in the user's cache (XDG_CACHE_HOME, else ~/.cache); takes a minute.
    """
    from penstock.spark.warm_up import warm_up

    load_config(ctx)
    archive = warm_up()
    typer.echo(f"wrote {archive} ({archive.stat().st_size / 2**20:.0f} MB)")
