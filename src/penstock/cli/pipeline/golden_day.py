"""`penstock pipeline golden-day`: a rehearsal of the pipeline and the audit, on data of its own."""

from typing import Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import load_config
from penstock.cli.output import print_table
from penstock.cli.pipeline.options import Conf, Master, session_settings

EXAMPLES = examples("penstock pipeline golden-day", "penstock pipeline golden-day --events 1000000 --keys 5000")

NOT_AS_EXPECTED = 1


def golden_day(
    ctx: typer.Context,
    events: Annotated[int, typer.Option(min=1_000, help="Events of the day.")] = 100_000,
    keys: Annotated[int, typer.Option(min=10, help="Keys that they are ordered by.")] = 500,
    master: Master = "",
    conf: Conf = None,
) -> None:
    """Make a day of events in a database of its own, fan it out with Spark, and audit it: it must be clean.

    Then one breach of each kind is planted, and the audit must find exactly these. Nothing is delivered to anybody.
    """
    from pathlib import Path
    from tempfile import TemporaryDirectory

    import msgspec

    from penstock.edge.clock import SystemClock
    from penstock.history.audit.audit import SPARK_SETTINGS
    from penstock.history.audit.golden_day import DAY_MS, PLANTED, GoldenDay, rehearse
    from penstock.history.audit.page import summary, verdict
    from penstock.spark.database import Database
    from penstock.spark.session import spark_session

    settings = session_settings(load_config(ctx), master, conf, app_name="penstock-golden-day")
    settings = msgspec.structs.replace(settings, conf={**SPARK_SETTINGS, **settings.conf})
    day = GoldenDay(from_ms=SystemClock().now_ms() - 2 * DAY_MS, events=events, keys=keys)
    with TemporaryDirectory(prefix="penstock-golden-day-") as directory, spark_session(settings) as spark:
        database = Database(f"sqlite://{Path(directory).absolute()}/jobs.db")
        rehearsed = rehearse(spark, database, f"{directory}/checkpoint", day)
    for title, result in (("As it was", rehearsed.day), ("With breaches", rehearsed.broken)):
        typer.echo(f"{title}: {verdict(result)}")
        print_table(("check", "guarantee", "findings"), [(*texts, str(number)) for *texts, number in summary(result)])
        typer.echo("")
    if not (rehearsed.day.is_clean and rehearsed.broken.totals == PLANTED):
        raise typer.Exit(NOT_AS_EXPECTED)
