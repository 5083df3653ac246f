"""`penstock jobs`: show jobs, and decide about those that failed."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.events.connection import connect, subscription_of
from penstock.cli.events.publish import ContentTypeOption, DataOption, read_data
from penstock.cli.family import examples, family
from penstock.cli.moments import epoch_ms, time_option
from penstock.cli.output import print_json, print_table, printable, time_text, yes_or_no
from penstock.cli.parameters import (
    ApiEndpoint,
    AsJson,
    Cursor,
    Headers,
    HighPriority,
    Limit,
    Mode,
    OfSubscription,
    Pool,
    Tenant,
    Yes,
    given,
    one_of,
    pairs,
)
from penstock.domain.job_state import JobStatus

if TYPE_CHECKING:
    from penstock.client import Attempt, Job, LaneView, Penstock

_EXPLAINED_GROUPS = 20
_MOST_AT_ONCE = 1000

JobIds: TypeAlias = Annotated[list[str], typer.Argument(metavar="ID…", help="Jobs; either all are changed or none.")]

app = family(
    "Show jobs, and retry, cancel or ignore them.",
    "penstock jobs list --status ERROR",
    "penstock jobs show 0S898QRG1D800",
    "penstock jobs retry --subscription billing --since 24h",
)


@app.callback()
def jobs() -> None:
    """Show jobs, and retry, cancel or ignore them."""


@app.command(
    "list",
    epilog=examples(
        "penstock jobs list",
        "penstock jobs list --status ERROR --since 24h --limit 100",
        "penstock jobs list --subscription billing --key order-17 --json",
    ),
)
def list_jobs(
    ctx: typer.Context,
    status: Annotated[
        JobStatus | None,
        typer.Option(
            parser=partial(one_of, JobStatus),
            metavar="STATUS",
            help=f"Only jobs of this status: {', '.join(JobStatus)}.",
        ),
    ] = None,
    subscription: OfSubscription = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only jobs of events with this key.")] = None,
    group: Annotated[str | None, typer.Option(metavar="KEY", help="Only jobs of this group, by its whole key.")] = None,
    event: Annotated[str | None, typer.Option(metavar="ID", help="Only jobs of this event.")] = None,
    job_type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only jobs of this type.")] = None,
    tenant: Tenant = None,
    since: Annotated[
        datetime | None, time_option("--since", "Only jobs created at or after this time.", "--from")
    ] = None,
    until: Annotated[datetime | None, time_option("--until", "Only jobs created before this time.", "--to")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="List the archive of finished jobs.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first, and what each one that waits is waiting for."""
    with connect(ctx, endpoint) as client:
        page = client.job_page(
            limit,
            cursor,
            status=status,
            subscription_id=None if subscription is None else subscription_of(client, subscription).id,
            group_key=group,
            key=key,
            event_id=event,
            type=job_type,
            tenant=tenant,
            created_from_ms=epoch_ms(since),
            created_to_ms=epoch_ms(until),
            archived=archived,
        )
        if as_json:
            print_json(page)
            return
        rows = _rows(client, page.jobs)
    print_table(
        ("id", "created (UTC)", "status", "type", "subscription", "key", "attempts", "waits for, or error"), rows
    )
    if page.cursor is not None:
        typer.echo(f"for more: --cursor {page.cursor}", err=True)


def _rows(client: "Penstock", jobs: list["Job"]) -> list[tuple[str, ...]]:
    known = {each.id: each for each in client.subscriptions()}
    waiting = list(dict.fromkeys(job.group_key for job in jobs if job.status is JobStatus.PENDING))
    # A page may have many groups; what the first ones wait for is enough to see why.
    lanes = {lane.group_key: lane for key in waiting[:_EXPLAINED_GROUPS] for lane in client.lanes(key)}
    return [
        (
            job.id,
            f"{job.created_at:%Y-%m-%dT%H:%M:%S}",
            job.status,
            job.type,
            known[job.subscription_id].name if job.subscription_id in known else "–",
            job.group or "–",
            str(job.attempts_spent),
            printable(waits_for(job, lanes.get(job.group_key)) or job.last_error or ""),
        )
        for job in jobs
    ]


def waits_for(job: "Job", lane: "LaneView | None") -> str:
    """Return what a job waits for; nothing if it waits no more."""
    if job.status is JobStatus.QUEUED:
        return "its turn in the router"
    if job.status is not JobStatus.PENDING:
        return ""
    if lane is not None and (lane.paused or lane.blocked_by not in (None, job.id)):
        return lane.reason
    if job.due_at > datetime.now(UTC):
        why = f", after: {job.last_error}" if job.deliveries else ""
        return f"its time, {time_text(job.due_at)}{why}"
    return "its turn"


@app.command(epilog=examples("penstock jobs show 0S898QRG1D800", "penstock jobs show 0S898QRG1D800 --json"))
def show(
    ctx: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job.")],
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Show a job and its attempts."""
    with connect(ctx, endpoint) as client:
        job, attempts = client.job(job_id), client.attempts(job_id)
    if as_json:
        print_json({"job": job, "attempts": attempts})
        return
    _print_job(job)
    _print_attempts(attempts)


@app.command(
    epilog=examples(
        """penstock jobs create --target https://orders.example/hook --data '{"total": 7}' --group customer-1""",
        "penstock jobs create --subscription billing --data @order.json --idempotency-key order-7",
        "penstock jobs create --target https://orders.example/hook --scheduled-for 2030-01-01T00:00:00Z",
        "penstock jobs create --target https://orders.example/hook --scheduled-for +2h --expires-at +3h",
    )
)
def create(
    ctx: typer.Context,
    target: Annotated[str | None, typer.Option(metavar="URL", help="Where to deliver the job.")] = None,
    subscription: Annotated[
        str | None, typer.Option(metavar="NAME|ID", help="Deliver it as this subscription's events are.")
    ] = None,
    data: DataOption = None,
    content_type: ContentTypeOption = "application/json",
    group: Annotated[str | None, typer.Option(metavar="NAME", help="Jobs of one group are delivered in order.")] = None,
    sequence: Annotated[int | None, typer.Option(metavar="N", help="The place in the group; lower goes first.")] = None,
    mode: Mode = None,
    high_priority: HighPriority = None,
    pool: Pool = None,
    job_type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="The type of the job.")] = None,
    header: Headers = None,
    scheduled_for: Annotated[
        datetime | None, time_option("--scheduled-for", "Do not deliver before this time.")
    ] = None,
    expires_at: Annotated[datetime | None, time_option("--expires-at", "Do not deliver after this time.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="A job with the same key is created once.")
    ] = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Create a job: one delivery of your data to a URL."""
    options = given(
        target=target,
        group=group,
        sequence=sequence,
        mode=mode,
        high_priority=high_priority,
        pool=pool,
        type=job_type,
        scheduled_for=scheduled_for,
        expires_at=expires_at,
        idempotency_key=idempotency_key,
        content_type=content_type,
        headers=pairs(header, "--header"),
        payload=read_data(data, content_type),
    )
    with connect(ctx, endpoint) as client:
        if subscription is not None:
            options["subscription_id"] = subscription_of(client, subscription).id
        receipt = client.create_job(**options)
    print_json(receipt) if as_json else print_table(("id", "new"), [(receipt.id, yes_or_no(receipt.is_new))])


@app.command(
    epilog=examples(
        "penstock jobs retry 0S898QRG1D800 0S898QRG1D801",
        "penstock jobs retry --group 0S898QREHD800:customer-1",
        "penstock jobs retry --subscription billing --since 24h",
        "penstock jobs retry --type orders:paid --yes",
    )
)
def retry(
    ctx: typer.Context,
    job_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Jobs in ERROR; all or none.")] = None,
    group: Annotated[
        str | None, typer.Option(metavar="KEY", help="All jobs of this group that are in ERROR, in order.")
    ] = None,
    subscription: OfSubscription = None,
    job_type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only jobs of this type.")] = None,
    since: Annotated[
        datetime | None, time_option("--since", "Only jobs created at or after this time.", "--from")
    ] = None,
    until: Annotated[datetime | None, time_option("--until", "Only jobs created before this time.", "--to")] = None,
    yes: Yes = False,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Retry jobs in ERROR: by id, of a group, or all that match a filter, after asking; --json does not ask."""
    filtered = any(option is not None for option in (subscription, job_type, since, until))
    if bool(job_ids) + bool(group) + filtered != 1:
        raise typer.BadParameter("give jobs, or --group, or a filter such as --subscription")
    with connect(ctx, endpoint) as client:
        if not filtered:
            ids = client.retry(*(job_ids or ())) if group is None else client.retry_group(group)
        else:
            which = given(type=job_type, created_from_ms=epoch_ms(since), created_to_ms=epoch_ms(until))
            if subscription is not None:
                which["subscription_id"] = subscription_of(client, subscription).id
            found = [job.id for job in client.jobs(status=JobStatus.ERROR, **which)]
            if found and not (yes or as_json):
                typer.confirm(f"retry {len(found)} jobs in ERROR?", abort=True, err=True)
            ids = retry_all(client, found)
    _print_ids("retried", ids, as_json=as_json)


def retry_all(client: "Penstock", newest_first: list[str]) -> list[str]:
    """Retry many jobs, the oldest first, as many at once as a request may have."""
    ids = newest_first[::-1]
    return [
        done
        for start in range(0, len(ids), _MOST_AT_ONCE)
        for done in client.retry(*ids[start : start + _MOST_AT_ONCE])
    ]


@app.command(epilog=examples("penstock jobs cancel 0S898QRG1D800"))
def cancel(ctx: typer.Context, job_ids: JobIds, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """Cancel jobs that no delivery has started for."""
    with connect(ctx, endpoint) as client:
        _print_ids("cancelled", client.cancel(*job_ids), as_json=as_json)


@app.command(epilog=examples("penstock jobs ignore 0S898QRG1D800"))
def ignore(ctx: typer.Context, job_ids: JobIds, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """Give up jobs in ERROR, so that the jobs they block move on."""
    with connect(ctx, endpoint) as client:
        _print_ids("ignored", client.ignore(*job_ids), as_json=as_json)


def _print_ids(done: str, ids: list[str], *, as_json: bool) -> None:
    print_json({"ids": ids}) if as_json else print_table((done,), [(job_id,) for job_id in ids])


def _print_job(job: "Job") -> None:
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
        "created": time_text(job.created_at),
        "updated": time_text(job.updated_at),
        "due": time_text(job.due_at),
        "expires": "" if job.expires_at is None else time_text(job.expires_at),
        "finished": "" if job.finished_at is None else time_text(job.finished_at),
    }
    print_table(("job", ""), [(name, printable(value)) for name, value in shown.items() if value])


def _print_attempts(attempts: list["Attempt"]) -> None:
    if attempts:
        typer.echo("")
        print_table(("attempt", "outcome", "status", "took", "at", "response"), attempt_rows(attempts))


def attempt_rows(attempts: Iterable["Attempt"]) -> list[tuple[str, ...]]:
    """Return a row for each delivery; those that were deferred in a row for the same reason share one."""
    return [_row(list(run)) for _, run in groupby(attempts, key=_run_of)]


def _run_of(attempt: "Attempt") -> tuple[str, str | None] | int:
    return ("", attempt.error) if attempt.outcome == "DEFERRED" else attempt.number


def _row(run: list["Attempt"]) -> tuple[str, ...]:
    first, last = run[0], run[-1]
    times = "" if len(run) == 1 else f" ({len(run)} times since {time_text(first.at)})"
    return (
        str(first.number) if len(run) == 1 else f"{first.number}–{last.number}",
        last.outcome,
        "" if last.status_code is None else str(last.status_code),
        f"{last.duration_ms} ms",
        time_text(last.at),
        printable(last.error or last.response or "") + times,
    )


def _error(job: "Job") -> str:
    return printable(job.last_error or "")
