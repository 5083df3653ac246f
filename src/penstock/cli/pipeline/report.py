"""`penstock pipeline report`: a day or a week of deliveries as one HTML file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.moments import day_of, day_option
from penstock.cli.options import load_config
from penstock.cli.output import print_json
from penstock.cli.parameters import AsJson, Conf, DatabaseUrl, DataDir, Lake, Master
from penstock.cli.pipeline.options import database_of, lake_of, session_settings

if TYPE_CHECKING:
    from penstock.history.report.figures import Figures
    from penstock.history.report.period import ReportPeriod
    from penstock.spark.database import SparkDatabase
    from penstock.spark.session import SessionSettings

EXAMPLES = examples(
    "penstock pipeline report --day 2030-01-31",
    "penstock pipeline report --week 2030-W05 --output week.html --lake s3://lake/penstock",
    "penstock pipeline report --day 2030-01-31 --from-database --json",
)


def report(
    ctx: typer.Context,
    day: Annotated[str | None, day_option("--day", "The day of the report, in UTC; else yesterday.")] = None,
    week: Annotated[str | None, typer.Option(metavar="WEEK", help="The week of the report, such as 2030-W05.")] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to write; else report-DAY.html.")
    ] = None,
    partitions: Annotated[
        int, typer.Option(min=2, max=128, metavar="N", help="Partitions to show the skew for, a power of two.")
    ] = 16,
    from_database: Annotated[
        bool, typer.Option("--from-database", help="Read the database instead of the lake.")
    ] = False,
    lake: Lake = "",
    master: Master = "",
    conf: Conf = None,
    database: DatabaseUrl = None,
    data: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write a report of a day or a week: volumes, skew, latencies, failures, slow endpoints and retries.

    The file needs nothing else: it can be mailed, and read on a phone. With --json its numbers are printed, and a file
    is written only if --output names one.
    """
    config = load_config(ctx)
    if partitions & (partitions - 1):
        raise typer.BadParameter(f"--partitions must be a power of two, not {partitions}")
    span = _span(day, week)
    session = session_settings(config, master, conf, app_name="penstock-report")
    if from_database:
        figures = _of_database(session, database_of(config, data, database), span, partitions)
    else:
        figures = _of_lake(session, lake_of(config, data, lake), span, partitions)
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(figures))
    if output is not None or not as_json:
        from penstock.history.report.document import document

        path = output or Path(f"report-{day or week or span.days[0]}.html")
        path.write_text(document(figures), encoding="utf-8")
        typer.echo(f"wrote {path}: {figures.totals.attempts:,} attempts of {span.title}", err=as_json)


def _span(day: str | None, week: str | None) -> "ReportPeriod":
    from penstock.history.report.period import day_period, week_period

    if day is not None and week is not None:
        raise typer.BadParameter("give one of --day and --week")
    if week is not None:
        return week_period(week)
    return day_period(day or day_of("yesterday"))


def _of_lake(session: "SessionSettings", path: str, span: "ReportPeriod", partitions: int) -> "Figures":
    from penstock.history.lake.lake import open_lake
    from penstock.history.report.figures import collect_figures
    from penstock.history.report.period import facts_of_lake, names_in_lake
    from penstock.spark.session import spark_session

    with spark_session(session) as spark:
        source = open_lake(spark, path)
        facts = facts_of_lake(source, span)
        return collect_figures(facts, span, f"the lake {path}", partitions, names_in_lake(source))


def _of_database(
    session: "SessionSettings", database: "SparkDatabase", span: "ReportPeriod", partitions: int
) -> "Figures":
    from penstock.history.report.figures import collect_figures
    from penstock.history.report.period import facts_of_database, names_in_database
    from penstock.spark.session import spark_session
    from penstock.spark.tables import Tables

    with spark_session(session) as spark:
        tables = Tables(spark, database)
        facts, names = facts_of_database(tables, span), names_in_database(tables)
        return collect_figures(facts, span, database.place, partitions, names)
