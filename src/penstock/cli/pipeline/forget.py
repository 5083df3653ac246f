"""`penstock pipeline forget`: delete what belongs to a key, a tenant or a subscription, and show that it is gone."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failures import FAILURE
from penstock.cli.family import examples
from penstock.cli.options import load_config
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import AsJson, DatabaseUrl, DataDir, Lake, Tenant, Yes
from penstock.cli.pipeline.options import database_of, lake_of

if TYPE_CHECKING:
    from penstock.history.forget import Found

EXAMPLES = examples(
    "penstock pipeline forget --key customer-1 --dry-run",
    "penstock pipeline forget --key customer-1 --tenant acme --yes",
    "penstock pipeline forget --subscription billing --database postgresql://penstock@db/penstock",
)


def forget(
    ctx: typer.Context,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="What belongs to this key (a group's name).")] = None,
    tenant: Tenant = None,
    subscription: Annotated[
        str | None,
        typer.Option(metavar="NAME|ID", help="What was delivered to this subscription; its events stay."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and delete nothing.")] = False,
    yes: Yes = False,
    lake: Lake = "",
    database: DatabaseUrl = None,
    data: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Delete the events, jobs and attempts of a key, a tenant or a subscription from database, archive and lake.

    They are counted first, and again at the end. With several options all of them must match. Jobs that wait are
    deleted, too. The exit code is 1 if something is left. Backups and logs are not touched.
    """
    from penstock.edge.clock import SystemClock
    from penstock.events.store import Subject
    from penstock.history.forget import Forgetting

    config = load_config(ctx)
    forgetting = Forgetting(database_of(config, data, database), lake_of(config, data, lake), SystemClock())
    if subscription is not None:
        subscription = forgetting.subscription_id(subscription)
    subject = Subject(key=key, tenant=tenant, subscription_id=subscription)
    before = forgetting.count(subject)
    if dry_run or not before.any:
        _print(before, None, as_json=as_json)
        return
    if not yes:
        _print(before, None, as_json=False)
        if not sys.stdin.isatty():
            raise typer.BadParameter("without a terminal, give --yes to delete them")
        typer.confirm("Delete them for good?", abort=True, err=True)
    forgetting.forget(subject)
    after = forgetting.count(subject)
    _print(before, after, as_json=as_json)
    if after.any:
        typer.echo("error: new ones have arrived meanwhile: run it again", err=True)
        raise typer.Exit(FAILURE)


def _print(before: "Found", after: "Found | None", *, as_json: bool) -> None:
    if as_json:
        import msgspec

        print_json(
            {"found": msgspec.to_builtins(before), "left": None if after is None else msgspec.to_builtins(after)}
        )
        return
    left = None if after is None else [number for _, _, number in _rows(after)]
    rows = [
        (place, what, f"{number:,}", *((f"{left[index]:,}",) if left is not None else ()))
        for index, (place, what, number) in enumerate(_rows(before))
    ]
    print_table(("where", "what", "found", *(("left",) if left is not None else ())), rows)


def _rows(found: "Found") -> list[tuple[str, str, int]]:
    counts = found.database
    return [
        ("database", "events", counts.events),
        ("database", "jobs", counts.jobs),
        ("database", "  of them not finished", counts.unfinished),
        ("archive", "jobs", counts.archived_jobs),
        ("database and archive", "attempts", counts.attempts),
        *(("lake", table, number) for table, number in found.lake.items()),
    ]
