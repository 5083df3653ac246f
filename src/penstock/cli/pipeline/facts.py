"""`penstock pipeline facts` and `migrate-lake`: the lake, and the statistics of the web page."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.moments import day_option
from penstock.cli.options import given_or, load_config
from penstock.cli.parameters import Conf, DatabaseUrl, DataDir, KeepDays, Lake, Master, Once
from penstock.cli.pipeline.options import checkpoint_of, database_of, lake_of, session_settings

if TYPE_CHECKING:
    from penstock.spark.session import SessionSettings

EXAMPLES = examples(
    "penstock pipeline facts --data ./penstock-data",
    "penstock pipeline facts --once --database postgresql://penstock@db/penstock --lake s3://lake/penstock",
    "penstock pipeline facts --keep-days 400",
    "penstock pipeline facts --compact --day 2030-01-31",
)


MIGRATE_EXAMPLES = examples("penstock pipeline migrate-lake --data ./penstock-data")


def facts(
    ctx: typer.Context,
    once: Once = False,
    compact: Annotated[
        bool, typer.Option("--compact", help="Only combine the lake's small files into a few, then stop.")
    ] = False,
    day: Annotated[str | None, day_option("--day", "The day to compact, in UTC; else all days.")] = None,
    keep_days: KeepDays = None,
    lake: Lake = "",
    master: Master = "",
    conf: Conf = None,
    database: DatabaseUrl = None,
    data: DataDir = None,
) -> None:
    """Write what happened to the lake, as Delta tables, and count attempts in statistics per minute.

    The command may be stopped at any time and started again: every attempt is in the lake once and counted once.
    Attempts that are invalid are set aside.
    """
    config = load_config(ctx)
    session = session_settings(config, master, conf, app_name="penstock-facts")
    if compact:
        _compact(session, lake_of(config, data, lake), day)
        return
    if day is not None:
        raise typer.BadParameter("--day goes with --compact")

    from penstock.history.lake.facts_job import FactsJob, FactsSettings
    from penstock.http.server import run as run_service
    from penstock.spark.pipeline import RunSettings, run_pipeline

    options = config.pipeline
    settings = FactsSettings(
        lake=lake_of(config, data, lake), keep_days=given_or(keep_days, options.keep_days), once=once
    )
    job = FactsJob(database_of(config, data, database), settings)
    # A free port: several jobs may run beside each other, each in a process of its own.
    run = RunSettings(session=session, checkpoint=checkpoint_of(config, data), once=once, port=0, stop_s=options.stop_s)
    run_service(run_pipeline([job], run))


def migrate_lake(
    ctx: typer.Context,
    lake: Lake = "",
    master: Master = "",
    conf: Conf = None,
    data: DataDir = None,
) -> None:
    """Turn a lake of an older version into Delta tables, once.

    Stop `penstock pipeline` first. It may be stopped at any time and run again. The old files stay: delete `_log` and
    the directories `day=…` when you no longer need them.
    """
    from penstock.history.lake.migration import migrate
    from penstock.spark.session import spark_session

    config = load_config(ctx)
    total = 0
    with spark_session(session_settings(config, master, conf, app_name="penstock-migrate-lake")) as spark:
        for done in migrate(spark, lake_of(config, data, lake)):
            total += done.rows
            typer.echo(f"{done.day}: {done.rows:,} deliveries")
    typer.echo(f"migrated {total:,} deliveries; the old files are still there")


def _compact(session: "SessionSettings", path: str, day: str | None) -> None:
    from penstock.history.lake.lake import open_lake
    from penstock.history.report.period import day_period
    from penstock.spark.session import spark_session

    wanted = None if day is None else day_period(day).days[0]
    with spark_session(session) as spark:
        for name, files in open_lake(spark, path).compact(wanted).items():
            typer.echo(f"{name}: {f'{files:,} files combined' if files else 'nothing to compact'}")
