"""`penstock jobs`: looking at jobs, and deciding about them."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.events.connection import EndpointOption, connect, path_part
from penstock.cli.events.publish import ContentTypeOption, DataOption, data_members
from penstock.cli.family import examples, family
from penstock.cli.output import AsJson, print_json, print_table
from penstock.cli.queue.messages import pairs, printable

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.cli.events.connection import ApiAnswer
    from penstock.events.api.job_types import JobView

PATH = "/api/v1/jobs"

JobIds: TypeAlias = Annotated[list[str], typer.Argument(metavar="ID…", help="Jobs; it is done to all or none.")]

app = family(
    "Look at dispatch jobs, and decide about those that failed.",
    "penstock jobs list --status ERROR",
    "penstock jobs show 0S898QRG1D800",
    "penstock jobs retry --group 0S898QREHD800:customer-1",
)


@app.callback()
def jobs() -> None:
    """Look at dispatch jobs, and decide about those that failed."""


@app.command(
    "list",
    epilog=examples(
        "penstock jobs list",
        "penstock jobs list --status ERROR --limit 100",
        "penstock jobs list --group 0S898QREHD800:customer-1 --json",
    ),
)
def list_jobs(
    ctx: typer.Context,
    status: Annotated[str | None, typer.Option(help="PENDING, QUEUED, PROCESSING, COMPLETED, ERROR …")] = None,
    subscription: Annotated[str | None, typer.Option(metavar="ID", help="Of this subscription.")] = None,
    group: Annotated[str | None, typer.Option(metavar="KEY", help="Of this group, by its whole key.")] = None,
    event: Annotated[str | None, typer.Option(metavar="ID", help="Caused by this event.")] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="Of this type.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Of this tenant.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="From the archive of finished jobs.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where to go on; the last page names it.")] = None,
    endpoint: EndpointOption = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first."""
    asked: dict[str, str | int | bool | None] = {
        "status": None if status is None else status.upper(),
        "subscriptionId": subscription,
        "groupKey": group,
        "eventId": event,
        "type": job_type,
        "tenant": tenant,
        "archived": archived or None,
        "limit": limit,
        "cursor": cursor,
    }
    answer = connect(ctx, endpoint).get(PATH, asked)
    if as_json:
        print_json(answer.json)
        return
    from penstock.events.api.jobs import JobList

    page = answer.read_as(JobList)
    rows = [(job.id, job.status, job.type, job.group_key, str(job.attempts_spent), _error(job)) for job in page.jobs]
    print_table(("id", "status", "type", "group", "attempts", "last error"), rows)
    if page.cursor is not None:
        typer.echo(f"there are more: --cursor {page.cursor}", err=True)


@app.command(epilog=examples("penstock jobs show 0S898QRG1D800", "penstock jobs show 0S898QRG1D800 --json"))
def show(
    ctx: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job.")],
    endpoint: EndpointOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a job and its attempts."""
    client = connect(ctx, endpoint)
    path = f"{PATH}/{path_part(job_id)}"
    job, attempts = client.get(path), client.get_all(f"{path}/attempts", "attempts")
    if as_json:
        print_json({"job": job.json, "attempts": _member(attempts, "attempts")})
        return
    _print_job(job)
    _print_attempts(attempts)


@app.command(
    epilog=examples(
        """penstock jobs create --target https://orders.example/hook --data '{"total": 7}' --group customer-1""",
        "penstock jobs create --subscription 0S898QREHD800 --data @order.json --idempotency-key order-7",
        "penstock jobs create --target https://orders.example/hook --scheduled-for 2030-01-01T00:00:00Z",
    )
)
def create(
    ctx: typer.Context,
    target: Annotated[str | None, typer.Option(metavar="URL", help="Where it is delivered to.")] = None,
    subscription: Annotated[
        str | None, typer.Option(metavar="ID", help="Deliver it as this subscription's events are.")
    ] = None,
    data: DataOption = None,
    content_type: ContentTypeOption = "application/json",
    group: Annotated[str | None, typer.Option(help="Jobs of one group go out in order.")] = None,
    sequence: Annotated[int | None, typer.Option(help="The place in the group; lower goes first.")] = None,
    mode: Annotated[str | None, typer.Option(help="IMMEDIATE, NEXT_ON_ERROR or BLOCK_ON_ERROR.")] = None,
    pool: Annotated[str | None, typer.Option(metavar="CODE", help="The pool it runs in.")] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="What kind of job it is.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A header to send; repeatable.")] = None,
    scheduled_for: Annotated[str | None, typer.Option(metavar="TIME", help="Not before (RFC 3339).")] = None,
    expires_at: Annotated[str | None, typer.Option(metavar="TIME", help="Not after (RFC 3339).")] = None,
    idempotency_key: Annotated[str | None, typer.Option(metavar="KEY", help="The same key makes one job.")] = None,
    endpoint: EndpointOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a job: one delivery of your data to a URL."""
    named = {
        "target": target,
        "subscriptionId": subscription,
        "group": group,
        "sequence": sequence,
        "mode": None if mode is None else mode.upper(),
        "pool": pool,
        "type": job_type,
        "scheduledFor": scheduled_for,
        "expiresAt": expires_at,
        "idempotencyKey": idempotency_key,
    }
    body = {
        **{name: value for name, value in named.items() if value is not None},
        "contentType": content_type,
        "headers": pairs(header, "--header"),
        **data_members(data, content_type, "payload", "payloadBase64"),
    }
    answer = connect(ctx, endpoint).send("POST", PATH, body)
    if as_json:
        print_json(answer.json)
        return
    from penstock.events.api.jobs import JobReceipt

    receipt = answer.read_as(JobReceipt)
    print_table(("id", "new"), [(receipt.id, "yes" if receipt.is_new else "no")])


@app.command(
    epilog=examples(
        "penstock jobs retry 0S898QRG1D800 0S898QRG1D801",
        "penstock jobs retry --group 0S898QREHD800:customer-1",
    )
)
def retry(
    ctx: typer.Context,
    job_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Jobs in ERROR; all or none.")] = None,
    group: Annotated[
        str | None, typer.Option(metavar="KEY", help="All jobs of this group that are in ERROR, in order.")
    ] = None,
    endpoint: EndpointOption = None,
    as_json: AsJson = False,
) -> None:
    """Begin anew with jobs in ERROR."""
    if bool(job_ids) == bool(group):
        raise typer.BadParameter("give jobs, or --group")
    if group is None:
        _decide(ctx, endpoint, "retry", job_ids or [], as_json=as_json)
        return
    answer = connect(ctx, endpoint).send("POST", f"{PATH}/retry-group", {"groupKey": group})
    _print_decided(answer, "retried", as_json=as_json)


@app.command(epilog=examples("penstock jobs cancel 0S898QRG1D800"))
def cancel(ctx: typer.Context, job_ids: JobIds, endpoint: EndpointOption = None, as_json: AsJson = False) -> None:
    """Give up jobs that no delivery has begun of."""
    _decide(ctx, endpoint, "cancel", job_ids, as_json=as_json)


@app.command(epilog=examples("penstock jobs ignore 0S898QRG1D800"))
def ignore(ctx: typer.Context, job_ids: JobIds, endpoint: EndpointOption = None, as_json: AsJson = False) -> None:
    """Give up jobs in ERROR, so that what they block moves on."""
    _decide(ctx, endpoint, "ignore", job_ids, as_json=as_json)


_DONE = {"retry": "retried", "cancel": "cancelled", "ignore": "ignored"}


def _decide(ctx: typer.Context, endpoint: str | None, verb: str, job_ids: list[str], *, as_json: bool) -> None:
    answer = connect(ctx, endpoint).send("POST", f"{PATH}/{verb}", {"ids": job_ids})
    _print_decided(answer, _DONE[verb], as_json=as_json)


def _print_decided(answer: "ApiAnswer", done: str, *, as_json: bool) -> None:
    if as_json:
        print_json(answer.json)
        return
    from penstock.events.api.jobs import Decided

    print_table((done,), [(job_id,) for job_id in answer.read_as(Decided).ids])


def _print_job(answer: "ApiAnswer") -> None:
    from penstock.events.api.job_types import JobView

    job = answer.read_as(JobView)
    shown = {
        "id": job.id,
        "status": job.status,
        "type": job.type,
        "target": job.target,
        "group": job.group_key,
        "mode": job.mode,
        "pool": job.pool,
        "event": job.event_id or "",
        "subscription": job.subscription_id or "",
        "attempts": f"{job.attempts_spent} spent, {job.deliveries} made",
        "last error": _error(job),
        "created": _moment(job.created_at),
        "updated": _moment(job.updated_at),
        "due": _moment(job.due_at),
        "expires": "" if job.expires_at is None else _moment(job.expires_at),
        "finished": "" if job.finished_at is None else _moment(job.finished_at),
    }
    print_table(("job", ""), [(name, printable(value)) for name, value in shown.items() if value])


def _print_attempts(answer: "ApiAnswer") -> None:
    from penstock.events.api.jobs import AttemptList

    rows = [
        (
            str(attempt.number),
            attempt.outcome,
            "" if attempt.status_code is None else str(attempt.status_code),
            f"{attempt.duration_ms} ms",
            _moment(attempt.at),
            printable(attempt.error or attempt.response or ""),
        )
        for attempt in answer.read_as(AttemptList).attempts
    ]
    if rows:
        typer.echo("")
        print_table(("attempt", "outcome", "status", "took", "at", "response"), rows)


def _moment(time: "datetime") -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _error(job: "JobView") -> str:
    return printable(job.last_error or "")


def _member(answer: "ApiAnswer", name: str) -> object:
    document = answer.json
    return document.get(name) if isinstance(document, dict) else None
