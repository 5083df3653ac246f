"""`penstock publish`: an event, to every subscription that matches it.

Data given on the command line: as it is, from a file (@FILE), or from standard input (@-).
"""

import sys
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.events.connection import connect
from penstock.cli.failures import FAILURE
from penstock.cli.family import examples
from penstock.cli.output import print_json, print_table, printable, yes_or_no
from penstock.cli.parameters import ApiEndpoint, AsJson, HighPriority, Tenant, pairs
from penstock.domain.job_state import COMPLETED, FINAL

if TYPE_CHECKING:
    from msgspec import Raw

    from penstock.client import Job, Penstock, Receipt

_ASK_EVERY_S = (0.02, 0.05, 0.1, 0.25)

DataOption: TypeAlias = Annotated[
    str | None, typer.Option("--data", metavar="JSON|@FILE", help="The data; @FILE reads a file, @- standard input.")
]
ContentTypeOption: TypeAlias = Annotated[
    str, typer.Option("--content-type", metavar="TYPE", help="The type of the data, if it is not JSON.")
]
Attributes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--attribute", metavar="K=V", help="An attribute that filters can use; repeatable."),
]
Subject: TypeAlias = Annotated[str | None, typer.Option("--subject", metavar="TEXT", help="What the event is about.")]


def read_json(given: str, option: str) -> "Raw":
    """Return JSON as it was written: given as it is, in a file (@FILE) or on standard input (@-)."""
    import msgspec

    try:
        return msgspec.json.decode(_content(given, option) or b"", type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"it is not JSON: {error}", param_hint=option) from error


def read_data(given: str | None, content_type: str) -> object:
    """Return the data as the client takes it: JSON as it was written, else bytes; None if none was given."""
    content = _content(given, "--data")
    if content is None or not content_type.partition(";")[0].strip().lower().endswith(("/json", "+json")):
        return content
    import msgspec

    try:
        return msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(
            f"it is not JSON: {error}; give --content-type if it is something else", param_hint="--data"
        ) from error


def _content(given: str | None, option: str) -> bytes | None:
    if given is None or not given.startswith("@"):
        return None if given is None else given.encode()
    if given == "@-":
        return sys.stdin.buffer.read()
    try:
        return Path(given[1:]).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {given[1:]}: {error.strerror}", param_hint=option) from error


EXAMPLES = examples(
    """penstock publish orders:created --key customer-1 --data '{"total": 7}'""",
    "penstock publish orders:created --key customer-1 --data @order.json --id order-7",
    "penstock publish orders:created --key customer-1 --data 7 --wait",
    "penstock publish orders:created --attribute region=eu --json",
)


def publish(
    ctx: typer.Context,
    event_type: Annotated[str, typer.Argument(metavar="TYPE", help="What happened, such as orders:created.")],
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Events of one key arrive in order.")] = None,
    data: DataOption = None,
    content_type: ContentTypeOption = "application/json",
    source: Annotated[str, typer.Option(metavar="URI", help="Where the event comes from.")] = "/penstock/cli",
    event_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The event's id; the same id and source again do nothing."),
    ] = None,
    subject: Subject = None,
    tenant: Tenant = None,
    attribute: Attributes = None,
    high_priority: HighPriority = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when it is delivered; the exit code is 1 if that fails.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.0, metavar="S", help="How many seconds --wait waits.")
    ] = 60.0,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Publish an event to every subscription that matches it, in order per key."""
    from penstock.client import Event
    from penstock.client.event import new_event_id

    event = Event(
        type=event_type,
        data=read_data(data, content_type),
        key=key,
        id=event_id or new_event_id(),
        source=source,
        subject=subject,
        tenant=tenant,
        content_type=content_type,
        attributes=pairs(attribute, "--attribute"),
        high_priority=bool(high_priority),
    )
    with connect(ctx, endpoint) as client:
        receipt = client.publish(event)
        jobs = _wait(client, receipt, timeout_s) if wait else []
        names = {each.id: each.name for each in client.subscriptions()} if jobs else {}
    if as_json:
        print_json({"events": [receipt], "jobs": jobs} if wait else {"events": [receipt]})
    else:
        row = (receipt.id, event_type, yes_or_no(receipt.is_new), str(receipt.subscriptions))
        print_table(("id", "type", "new", "subscriptions"), [row])
        for job in jobs:
            typer.echo(_outcome(job, names.get(job.subscription_id or "", "a deleted subscription")))
    _explain(receipt, jobs, tenant, timeout_s if wait else None)


def _wait(client: "Penstock", receipt: "Receipt", timeout_s: float) -> list["Job"]:
    """Return the jobs of an event when all of them have ended, or as they are when the time is over."""
    end_s = monotonic() + timeout_s
    asked = 0
    while True:
        jobs = list(client.jobs(event_id=receipt.id))
        ended = len(jobs) >= receipt.subscriptions and all(job.status in FINAL for job in jobs)
        if ended or monotonic() >= end_s:
            return sorted(jobs, key=lambda job: job.id)
        sleep(_ASK_EVERY_S[min(asked, len(_ASK_EVERY_S) - 1)])
        asked += 1


def _outcome(job: "Job", name: str) -> str:
    tries = f"{job.deliveries} attempt{'' if job.deliveries == 1 else 's'}"
    if job.status is COMPLETED and job.finished_at is not None:
        took_ms = (job.finished_at - job.created_at).total_seconds() * 1000
        return printable(f"delivered to {name} at {job.target} in {took_ms:.0f} ms, {tries}")
    return printable(f"not delivered to {name} at {job.target}: {job.status}, {tries}. {job.last_error or ''}").rstrip()


def _explain(receipt: "Receipt", jobs: list["Job"], tenant: str | None, waited_s: float | None) -> None:
    """Say on standard error what did not work; after a wait it is a failure."""
    for warning in receipt.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if receipt.subscriptions == 0 and not jobs:
        of = f" of the tenant {tenant}" if tenant else ""
        typer.echo(
            f"no subscription{of} matches this event, so it is delivered to no one; "
            "`penstock subscriptions list` shows the patterns",
            err=True,
        )
    if waited_s is None or (jobs and all(job.status is COMPLETED for job in jobs)):
        return
    if len(jobs) < receipt.subscriptions or any(job.status not in FINAL for job in jobs):
        typer.echo(
            f"not delivered within {waited_s:g} s; `penstock jobs list --event {receipt.id}` shows what it waits for",
            err=True,
        )
    raise typer.Exit(FAILURE)
