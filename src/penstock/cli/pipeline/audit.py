"""`penstock pipeline audit`: proof that nothing was lost and every key kept its order."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failures import tell_trace
from penstock.cli.family import examples
from penstock.cli.moments import duration_ms, moment_ms
from penstock.cli.options import load_config, options_of
from penstock.cli.output import AsJson, print_json, print_table
from penstock.cli.pipeline.options import Conf, Data, DatabaseUrl, Master, database_of, session_settings
from penstock.cli.queue.messages import printable
from penstock.domain.errors import PenstockError

if TYPE_CHECKING:
    from penstock.history.audit.findings import AuditResult
    from penstock.history.audit.window import AuditWindow
    from penstock.ops.config import Config
    from penstock.spark.database import Database
    from penstock.spark.session import SessionSettings

EXAMPLES = examples(
    "penstock pipeline audit --data ./penstock-data",
    "penstock pipeline audit --since 24h --html audit.html",
    "penstock pipeline audit --database postgresql://penstock@db/penstock --since 2030-01-01 --until 2030-01-02 --json",
)

BROKEN = 1
FAILED = 3
"""Beside 1, which says that the audit was made and found something."""


def audit(
    ctx: typer.Context,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From then on: ISO 8601, a day, or 24h for a day ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Up to then; else five seconds ago.")] = None,
    subscription: Annotated[str | None, typer.Option(metavar="ID", help="This subscription alone.")] = None,
    tolerance: Annotated[
        str, typer.Option(metavar="TIME", help="By how much the clocks of your machines may differ.")
    ] = "0ms",
    most: Annotated[int, typer.Option("--examples", min=0, max=10_000, help="Findings shown of each kind.")] = 20,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the audit as a page, too.")] = None,
    master: Master = "",
    conf: Conf = None,
    database: DatabaseUrl = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Prove from events, jobs and attempts that nothing was lost, and that every key kept its order.

    Exit code 0: nothing was broken. 1: something was, and the rows are shown that prove it. 3: the audit failed.
    """
    config = load_config(ctx)
    window = _window(config, since, until, subscription, tolerance)
    place = database_of(config, data, database)
    try:
        result = _audited(place, session_settings(config, master, conf, app_name="penstock-audit"), window, most)
    except PenstockError as error:
        if options_of(ctx).debug:
            tell_trace(error)
        typer.echo(f"error: {' '.join(error.message.split())}", err=True)
        raise typer.Exit(FAILED) from error
    _tell(result, as_json=as_json)
    if html is not None:
        _write(html, result)
    if not result.is_clean:
        raise typer.Exit(BROKEN)


def _window(
    config: "Config", since: str | None, until: str | None, subscription: str | None, tolerance: str
) -> "AuditWindow":
    from penstock.edge.clock import SystemClock
    from penstock.history.audit.window import SETTLED_MS, AuditWindow

    now_ms = SystemClock().now_ms()
    kept_since_ms = now_ms - round(config.scheduler.keep_archive_s * 1000)
    since_ms = kept_since_ms if since is None else moment_ms(since, now_ms, "--since")
    if since_ms < kept_since_ms:
        since_ms = kept_since_ms
        typer.echo("what is older than scheduler.keep_archive_s is not kept: the audit begins there", err=True)
    settled_ms = now_ms - SETTLED_MS
    until_ms = settled_ms if until is None else min(moment_ms(until, now_ms, "--until"), settled_ms)
    if until_ms <= since_ms:
        raise typer.BadParameter("there is nothing between --since and --until")
    return AuditWindow(
        since_ms=since_ms,
        until_ms=until_ms,
        taken_ms=now_ms,
        tolerance_ms=duration_ms(tolerance, "--tolerance"),
        subscription_id=subscription,
    )


def _audited(place: "Database", settings: "SessionSettings", window: "AuditWindow", most: int) -> "AuditResult":
    from penstock.spark.requirements import require_spark

    require_spark()
    import msgspec

    from penstock.history.audit.audit import SPARK_SETTINGS, audit_database
    from penstock.spark.session import spark_session

    with spark_session(msgspec.structs.replace(settings, conf={**SPARK_SETTINGS, **settings.conf})) as spark:
        return audit_database(spark, place, window, most)


def _write(file: Path, result: "AuditResult") -> None:
    from penstock.history.audit.page import html_page

    try:
        file.write_text(html_page(result), encoding="utf-8")
    except OSError as error:
        typer.echo(f"error: {file} cannot be written: {error.strerror}", err=True)
        raise typer.Exit(FAILED) from error


def _tell(result: "AuditResult", *, as_json: bool) -> None:
    import msgspec

    from penstock.history.audit.page import FINDING_COLUMNS, finding_cells, looked_at, summary, verdict

    if as_json:
        print_json({"clean": result.is_clean, **msgspec.to_builtins(result)})
        return
    typer.echo(verdict(result))
    typer.echo("")
    print_table(
        ("check", "guarantee", "findings"), [(name, says, str(number)) for name, says, number in summary(result)]
    )
    typer.echo("")
    print_table(("looked at", "rows"), [(name, str(number)) for name, number in looked_at(result)])
    if result.findings:
        typer.echo("")
        rows = [tuple(map(printable, finding_cells(finding))) for finding in result.findings]
        print_table(FINDING_COLUMNS, rows)
