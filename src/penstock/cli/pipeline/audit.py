"""`penstock pipeline audit`: proof that nothing was lost and every key kept its order; `golden-day` rehearses it."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failures import print_trace
from penstock.cli.family import examples
from penstock.cli.moments import duration_ms, epoch_ms, time_option
from penstock.cli.options import given_or, load_config, options_of
from penstock.cli.output import print_json, print_table, printable
from penstock.cli.parameters import AsJson, Conf, DatabaseUrl, DataDir, Master, SubscriptionId
from penstock.cli.pipeline.options import database_of, session_settings
from penstock.domain.errors import PenstockError

if TYPE_CHECKING:
    from penstock.history.audit.findings import AuditResult
    from penstock.history.audit.window import AuditWindow
    from penstock.ops.config import Config
    from penstock.spark.database import SparkDatabase
    from penstock.spark.session import SessionSettings

AUDIT_EXAMPLES = examples(
    "penstock pipeline audit --data ./penstock-data",
    "penstock pipeline audit --since 24h --html audit.html",
    "penstock pipeline audit --database postgresql://penstock@db/penstock --since 2030-01-01 --until 2030-01-02 --json",
)

GOLDEN_DAY_EXAMPLES = examples(
    "penstock pipeline golden-day",
    "penstock pipeline golden-day --events 1000000 --keys 5000",
    "penstock pipeline golden-day --keep ./golden-day",
)

_SHOWN = 20
BROKEN = 1
FAILED = 3
"""Not 1, which says that the audit was made and found something."""


def audit(
    ctx: typer.Context,
    since: Annotated[
        datetime | None, time_option("--since", "Audit from this time; else everything kept.", "--from")
    ] = None,
    until: Annotated[
        datetime | None, time_option("--until", "Audit up to this time; else five seconds ago.", "--to")
    ] = None,
    subscription: SubscriptionId = None,
    tolerance: Annotated[
        str, typer.Option(metavar="DURATION", help="How much the clocks of your machines may differ, such as 50ms.")
    ] = "0ms",
    most: Annotated[
        int, typer.Option("--examples", min=0, max=10_000, metavar="N", help="Findings to show of each kind.")
    ] = 20,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the audit as a web page, too.")] = None,
    console: Annotated[
        str | None, typer.Option(metavar="URL", help="Penstock's web page, which findings link to; else api.endpoint.")
    ] = None,
    master: Master = "",
    conf: Conf = None,
    database: DatabaseUrl = None,
    data: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Prove from events, jobs and attempts that nothing was lost, and that every key kept its order.

    It also says how late each subscription got its events, and what still waits.

    Exit code 0: no promise was broken. 1: one was, and the rows that prove it are shown. 3: the audit failed.
    """
    from penstock.spark.requirements import require_spark

    config = load_config(ctx)
    try:
        require_spark()
        window = _window(config, since, until, subscription, tolerance)
        place = database_of(config, data, database)
        settings = session_settings(config, master, conf, app_name="penstock-audit")
        result = _audited(place, settings, window, most, config.pipeline.checkpoint)
    except PenstockError as error:
        if options_of(ctx).debug:
            print_trace(error)
        typer.echo(f"error: {' '.join(error.message.split())}", err=True)
        raise typer.Exit(FAILED) from error
    console = console or config.api.endpoint
    _print(result, console, as_json=as_json)
    if html is not None:
        _write(html, result, console)
    if not result.is_clean:
        raise typer.Exit(BROKEN)


def golden_day(
    ctx: typer.Context,
    events: Annotated[int, typer.Option(min=1_000, metavar="N", help="Events of the day.")] = 100_000,
    keys: Annotated[int, typer.Option(min=10, metavar="N", help="Keys that they are ordered by.")] = 500,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Leave the day there, with its breaches and its lake, as a data directory."),
    ] = None,
    master: Master = "",
    conf: Conf = None,
) -> None:
    """Create a day of events in a temporary database, fan it out with Spark, and audit it: it must be clean.

    Then one breach of each kind is planted, and the audit must find exactly these. Nothing is delivered.
    """
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise typer.BadParameter(f"{keep} is not empty: name a new directory", param_hint="--keep")
    from penstock.spark.requirements import require_spark

    require_spark()
    from tempfile import TemporaryDirectory
    from urllib.parse import quote

    import msgspec

    from penstock.edge.clock import SystemClock
    from penstock.edge.private_files import private_directory
    from penstock.history.audit.audit import SPARK_SETTINGS
    from penstock.history.audit.golden_day import DAY_MS, PLANTED, GoldenDay, fill_lake, rehearse
    from penstock.history.audit.page import summary, verdict
    from penstock.spark.database import SparkDatabase
    from penstock.spark.session import spark_session

    settings = session_settings(load_config(ctx), master, conf, app_name="penstock-golden-day")
    settings = msgspec.structs.replace(settings, conf={**SPARK_SETTINGS, **settings.conf})
    day = GoldenDay(from_ms=SystemClock().now_ms() - 2 * DAY_MS, events=events, keys=keys)
    with TemporaryDirectory(prefix="penstock-golden-day-") as directory, spark_session(settings) as spark:
        place = keep or Path(directory)
        private_directory(place)
        database = SparkDatabase(f"sqlite://{quote(str(place.absolute()))}/jobs.db")
        rehearsed = rehearse(spark, database, f"{directory}/checkpoint", day, _say_step)
        if keep is not None:
            _say_step("filling the lake")
            fill_lake(spark, database, str(keep.absolute() / "lake"), f"{directory}/facts")
    for title, result in (("As it was", rehearsed.day), ("With breaches", rehearsed.broken)):
        typer.echo(f"{title}: {verdict(result)}")
        print_table(("check", "guarantee", "findings"), [(*texts, str(number)) for *texts, number in summary(result)])
        typer.echo("")
    if keep is not None:
        typer.echo(f"the day is in {keep}: penstock pipeline audit --data {keep}, penstock pipeline sql --data {keep}")
    if not (rehearsed.day.is_clean and rehearsed.broken.totals == PLANTED):
        raise typer.Exit(BROKEN)


def _say_step(step: str) -> None:
    typer.echo(f"{step} …", err=True)


def _window(
    config: "Config", since: datetime | None, until: datetime | None, subscription: str | None, tolerance: str
) -> "AuditWindow":
    from penstock.edge.clock import SystemClock
    from penstock.history.audit.window import SETTLED_MS, AuditWindow

    now_ms = SystemClock().now_ms()
    kept_since_ms = now_ms - round(config.scheduler.keep_archive_s * 1000)
    since_ms = given_or(epoch_ms(since), kept_since_ms)
    if since_ms < kept_since_ms:
        since_ms = kept_since_ms
        typer.echo("jobs older than scheduler.keep_archive_s are not kept: the audit starts there", err=True)
    settled_ms = now_ms - SETTLED_MS
    until_ms = min(given_or(epoch_ms(until), settled_ms), settled_ms)
    if until_ms <= since_ms:
        raise typer.BadParameter("--until is not after --since")
    return AuditWindow(
        since_ms=since_ms,
        until_ms=until_ms,
        taken_ms=now_ms,
        tolerance_ms=duration_ms(tolerance, "--tolerance"),
        subscription_id=subscription,
    )


def _audited(
    place: "SparkDatabase", settings: "SessionSettings", window: "AuditWindow", most: int, checkpoint: str
) -> "AuditResult":
    import msgspec

    from penstock.history.audit.audit import SPARK_SETTINGS, audit_database
    from penstock.spark.session import require_file_system, spark_session

    with spark_session(msgspec.structs.replace(settings, conf={**SPARK_SETTINGS, **settings.conf})) as spark:
        if checkpoint:
            # So that the loss of an executor costs its work, and not the audit.
            require_file_system(spark, checkpoint)
            spark.sparkContext.setCheckpointDir(f"{checkpoint.rstrip('/')}/audit")
        return audit_database(spark, place, window, most)


def _write(file: Path, result: "AuditResult", console: str) -> None:
    from penstock.history.audit.page import html_page

    try:
        file.write_text(html_page(result, console), encoding="utf-8")
    except OSError as error:
        typer.echo(f"error: {file} cannot be written: {error.strerror}", err=True)
        raise typer.Exit(FAILED) from error


def _print(result: "AuditResult", console: str, *, as_json: bool) -> None:
    import msgspec

    from penstock.history.audit.lateness import LATENESS_COLUMNS, lateness_cells
    from penstock.history.audit.page import FINDING_COLUMNS, address, finding_cells, looked_at, summary, verdict

    addresses = [address(console, finding) for finding in result.findings]
    if as_json:
        fields = msgspec.to_builtins(result)
        fields["findings"] = [
            {**finding, "webPage": to} if to else finding
            for finding, to in zip(fields["findings"], addresses, strict=True)
        ]
        print_json({"clean": result.is_clean, **fields})
        return
    typer.echo(verdict(result))
    typer.echo("")
    print_table(
        ("check", "guarantee", "findings"), [(name, says, str(number)) for name, says, number in summary(result)]
    )
    typer.echo("")
    if result.lateness:
        print_table(
            LATENESS_COLUMNS, [tuple(map(printable, cells)) for cells in lateness_cells(result.lateness[:_SHOWN])]
        )
        typer.echo("")
    print_table(("looked at", "rows"), [(name, str(number)) for name, number in looked_at(result)])
    if result.findings:
        typer.echo("")
        rows = [tuple(map(printable, finding_cells(finding))) for finding in result.findings]
        print_table(FINDING_COLUMNS, rows)
    if first := next(filter(None, addresses), None):
        typer.echo(f"\nThe web page shows each job, the first one at {first}")
