"""`penstock pipeline facts`: the lake of delivery facts, and the statistics of the web page."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.moments import day_option
from penstock.cli.options import load_config
from penstock.cli.parameters import Conf, DatabaseUrl, DataDir, Lake, LakeFormatName, Master, Once
from penstock.cli.pipeline.options import checkpoint_of, database_of, lake_format_of, lake_of, session_settings

if TYPE_CHECKING:
    from penstock.history.lake.lake import LakeFormat
    from penstock.spark.session import SessionSettings

EXAMPLES = examples(
    "penstock pipeline facts --data ./penstock-data",
    "penstock pipeline facts --once --database postgresql://penstock@db/penstock --lake hdfs://lake/penstock",
    "penstock pipeline facts --compact --day 2030-01-31",
)


def facts(
    ctx: typer.Context,
    once: Once = False,
    compact: Annotated[
        bool, typer.Option("--compact", help="Only combine the lake's small files into a few, then stop.")
    ] = False,
    day: Annotated[str | None, day_option("--day", "The day to compact, in UTC; else all days.")] = None,
    lake_format: LakeFormatName = "parquet",
    lake: Lake = "",
    master: Master = "",
    conf: Conf = None,
    database: DatabaseUrl = None,
    data: DataDir = None,
) -> None:
    """Write attempts to a lake of delivery facts, one directory per day, and into statistics per minute.

    The command may be stopped at any time and started again: every attempt is in the lake once and counted once.
    Attempts that are invalid are set aside.
    """
    config = load_config(ctx)
    chosen = lake_format_of(lake_format)
    session = session_settings(config, master, conf, app_name="penstock-facts")
    if compact:
        _compact(session, lake_of(config, data, lake), chosen, day)
        return
    if day is not None:
        raise typer.BadParameter("--day goes with --compact")

    from penstock.history.lake.facts_job import FactsJob, FactsSettings
    from penstock.http.server import run as run_service
    from penstock.spark.pipeline import RunSettings, run_pipeline

    options = config.pipeline
    settings = FactsSettings(lake=lake_of(config, data, lake), format=chosen, once=once)
    job = FactsJob(database_of(config, data, database), settings)
    # A free port: several jobs may run beside each other, each in a process of its own.
    run = RunSettings(session=session, checkpoint=checkpoint_of(config, data), once=once, port=0, stop_s=options.stop_s)
    run_service(run_pipeline([job], run))


def _compact(session: "SessionSettings", path: str, chosen: "LakeFormat", day: str | None) -> None:
    from penstock.history.lake.lake import open_lake
    from penstock.history.report.period import day_period
    from penstock.spark.session import spark_session

    wanted = None if day is None else day_period(day).days
    with spark_session(session) as spark:
        lake = open_lake(spark, path, chosen)
        for each in lake.days() if wanted is None else wanted:
            done = lake.compact(each)
            typer.echo(
                f"{each}: nothing to compact"
                if done is None
                else f"{each}: {done.rows:,} facts of {done.batches:,} batches"
            )
