"""`penstock groups`: keys that wait for a failed job, and what to do about them."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.events.connection import connect, subscription_of
from penstock.cli.family import examples, family
from penstock.cli.output import print_json, print_table, printable, time_text
from penstock.cli.parameters import ApiEndpoint, AsJson, OfSubscription, Yes
from penstock.domain.errors import NotFound
from penstock.domain.job_state import JobStatus

if TYPE_CHECKING:
    from penstock.client import HeldGroupView, LaneView, Penstock

Key: TypeAlias = Annotated[
    str, typer.Argument(metavar="KEY", help="The key of events, such as order-17, or a whole group key.")
]
_MOST_AT_ONCE = 1000

app = family(
    "Show keys that wait for a failed job, and let them go on.",
    "penstock groups list",
    "penstock groups show order-17",
    "penstock groups retry --subscription billing",
)


@app.callback()
def groups() -> None:
    """Show keys that wait for a failed job, and let them go on."""


@app.command("list", epilog=examples("penstock groups list", "penstock groups list --subscription billing --json"))
def list_groups(
    ctx: typer.Context, subscription: OfSubscription = None, endpoint: ApiEndpoint = None, as_json: AsJson = False
) -> None:
    """List the keys that wait for a failed job, those in ERROR first, then the longest held."""
    with connect(ctx, endpoint) as client:
        found = _held(client, subscription)
    found.sort(key=lambda group: (group.errors == 0, group.since))
    if as_json:
        print_json({"groups": found})
        return
    rows = [
        (
            time_text(group.since),
            group.subscription or "–",
            _key_of(group.group_key, group.subscription_id),
            str(group.errors),
            str(group.retrying),
            "a decision: retry or skip" if group.errors else "the next attempt",
        )
        for group in found
    ]
    print_table(("since", "subscription", "key", "in error", "retrying", "waits for"), rows)


@app.command(epilog=examples("penstock groups show order-17", "penstock groups show order-17 --json"))
def show(
    ctx: typer.Context,
    key: Key,
    subscription: OfSubscription = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Show the unfinished jobs of a key, in the order of delivery, and what they wait for."""
    with connect(ctx, endpoint) as client:
        lanes = _lanes(client, key, subscription)
    if as_json:
        print_json({"lanes": lanes})
        return
    for lane in lanes:
        waiting = ", ".join(f"{count} {status}" for status, count in lane.counts.items() if count)
        typer.echo(f"{lane.subscription or lane.group_key}: {printable(lane.reason)} ({waiting})")
        rows = [
            (
                job.id,
                job.status,
                job.type,
                str(job.attempts_spent),
                time_text(job.due_at),
                printable(job.last_error or ""),
            )
            for job in lane.jobs
        ]
        if rows:
            print_table(("id", "status", "type", "attempts", "due", "last error"), rows)
        typer.echo("")


@app.command(
    epilog=examples(
        "penstock groups retry order-17",
        "penstock groups retry --subscription billing",
    )
)
def retry(
    ctx: typer.Context,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="The key; else all of the subscription.")] = None,
    subscription: OfSubscription = None,
    yes: Yes = False,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Retry the jobs in ERROR of a key, or of all keys of a subscription, in order; --json does not ask."""
    if key is None and subscription is None:
        raise typer.BadParameter("give a key, or --subscription")
    with connect(ctx, endpoint) as client:
        if key is not None:
            held = [lane.group_key for lane in _lanes(client, key, subscription) if lane.counts.get(JobStatus.ERROR)]
        else:
            held = [group.group_key for group in _held(client, subscription) if group.errors]
            if held and not (yes or as_json):
                typer.confirm(f"retry the failed jobs of {len(held)} keys?", abort=True, err=True)
        ids = [job_id for group_key in held for job_id in client.retry_group(group_key)]
    _print_ids("retried", ids, as_json=as_json)


@app.command(epilog=examples("penstock groups skip order-17", "penstock groups skip order-17 --subscription billing"))
def skip(
    ctx: typer.Context,
    key: Key,
    subscription: OfSubscription = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Give up the one job that a key waits for, so that the next one goes."""
    with connect(ctx, endpoint) as client:
        lane = _one_with_errors(client, key, subscription)
        first = next(job.id for job in lane.jobs if job.status is JobStatus.ERROR)
        _print_ids("skipped", client.ignore(first), as_json=as_json)


@app.command(epilog=examples("penstock groups ignore order-17 --subscription billing"))
def ignore(
    ctx: typer.Context,
    key: Key,
    subscription: OfSubscription = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Give up all jobs of a key that are in ERROR, so that the others go on."""
    with connect(ctx, endpoint) as client:
        lane = _one_with_errors(client, key, subscription)
        ids = [job.id for job in client.jobs(status=JobStatus.ERROR, group_key=lane.group_key)][::-1]
        done = [
            each
            for start in range(0, len(ids), _MOST_AT_ONCE)
            for each in client.ignore(*ids[start : start + _MOST_AT_ONCE])
        ]
    _print_ids("ignored", done, as_json=as_json)


def _held(client: "Penstock", subscription: str | None) -> list["HeldGroupView"]:
    wanted = None if subscription is None else subscription_of(client, subscription).id
    return [group for group in client.held_groups() if wanted in (None, group.subscription_id)]


def _lanes(client: "Penstock", key: str, subscription: str | None) -> list["LaneView"]:
    wanted = None if subscription is None else subscription_of(client, subscription).id
    found = [lane for lane in client.lanes(key) if wanted in (None, lane.subscription_id)]
    if not found:
        raise NotFound(f"no job has the key {key!r}; `penstock groups list` shows the keys that wait")
    return found


def _one_with_errors(client: "Penstock", key: str, subscription: str | None) -> "LaneView":
    failed = [lane for lane in _lanes(client, key, subscription) if lane.counts.get(JobStatus.ERROR)]
    if not failed:
        raise NotFound(f"no job of the key {key!r} is in ERROR")
    if len(failed) > 1:
        names = ", ".join(lane.subscription or lane.group_key for lane in failed)
        raise typer.BadParameter(f"several subscriptions have failed jobs of this key: give --subscription, of {names}")
    return failed[0]


def _key_of(group_key: str, subscription_id: str | None) -> str:
    return group_key.removeprefix(f"{subscription_id}:") if subscription_id else group_key


def _print_ids(done: str, ids: list[str], *, as_json: bool) -> None:
    print_json({"ids": ids}) if as_json else print_table((done,), [(job_id,) for job_id in ids])
