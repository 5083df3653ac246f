"""`penstock subscriptions`: who gets which events, and where."""

import json
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.events.connection import EndpointOption, connect, path_part
from penstock.cli.failures import FAILURE
from penstock.cli.family import examples, family
from penstock.cli.output import AsJson, print_json, print_table
from penstock.cli.queue.connection import Yes
from penstock.cli.queue.messages import pairs, printable
from penstock.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from penstock.cli.events.connection import ApiAnswer, ApiClient
    from penstock.events.api.subscription_types import SubscriptionView

PATH = "/api/v1/subscriptions"

Which: TypeAlias = Annotated[str, typer.Argument(metavar="NAME|ID", help="The subscription, by its name or its id.")]
Filters: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--filter", metavar="K=V,…", help="Only events whose attribute has one of the values; repeatable."),
]
Headers: TypeAlias = Annotated[
    list[str] | None, typer.Option("--header", metavar="K=V", help="A header to send; repeatable.")
]
Retry: TypeAlias = Annotated[
    str | None, typer.Option("--retry", metavar="S,S,…", help="Seconds to wait after each failed attempt.")
]
Timeout: TypeAlias = Annotated[float | None, typer.Option("--timeout", metavar="S", help="Time for an answer.")]
Mode: TypeAlias = Annotated[
    str | None, typer.Option("--mode", help="BLOCK_ON_ERROR (unless given), NEXT_ON_ERROR or IMMEDIATE.")
]
Pool: TypeAlias = Annotated[str | None, typer.Option("--pool", metavar="CODE", help="The pool its jobs run in.")]
DeadLetters: TypeAlias = Annotated[
    str | None, typer.Option("--dead-letter-topic", metavar="TOPIC", help="Gets a copy of what is given up.")
]

app = family(
    "Say who gets which events, and where.",
    "penstock subscriptions create billing --pattern 'orders:**' --target https://billing.example/hook",
    "penstock subscriptions list",
    "penstock subscriptions test billing",
)


@app.callback()
def subscriptions() -> None:
    """Say who gets which events, and where."""


@app.command("list", epilog=examples("penstock subscriptions list", "penstock subscriptions list --json"))
def list_subscriptions(ctx: typer.Context, endpoint: EndpointOption = None, as_json: AsJson = False) -> None:
    """List all subscriptions."""
    answer = connect(ctx, endpoint).get_all(PATH, "subscriptions")
    if as_json:
        print_json(answer.json)
        return
    from penstock.events.api.subscriptions import SubscriptionList

    _print(*answer.read_as(SubscriptionList).subscriptions)


@app.command(
    epilog=examples(
        "penstock subscriptions create billing --pattern 'orders:**' --target https://billing.example/hook",
        "penstock subscriptions create eu --pattern 'orders:*:created' --target https://eu.example "
        "--filter region=eu,uk --mode NEXT_ON_ERROR --retry 5,60,3600",
    )
)
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name; each tenant has it once.")],
    pattern: Annotated[
        str, typer.Option(metavar="P", help="Which types; * is one segment, ** at the end is the rest.")
    ],
    target: Annotated[str, typer.Option(metavar="URL", help="Where events go.")],
    filters: Filters = None,
    mode: Mode = None,
    pool: Pool = None,
    retry: Retry = None,
    timeout_s: Timeout = None,
    header: Headers = None,
    dead_letter_topic: DeadLetters = None,
    tenant: Annotated[str | None, typer.Option(help="Whose events it gets.")] = None,
    endpoint: EndpointOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a subscription; the secret that signs its deliveries is shown this once."""
    body = {
        "name": name,
        "pattern": pattern,
        "target": target,
        **({} if tenant is None else {"tenant": tenant}),
        **_options(filters, mode, pool, retry, timeout_s, header, dead_letter_topic),
    }
    answer = connect(ctx, endpoint).send("POST", PATH, body)
    if as_json:
        print_json(answer.json)
        return
    from penstock.events.api.subscriptions import SubscriptionMade

    made = answer.read_as(SubscriptionMade)
    _print(made.subscription)
    typer.echo(f"\nits secret, shown this once: {made.secret}")


@app.command(
    epilog=examples(
        "penstock subscriptions update billing --target https://new.example/hook",
        "penstock subscriptions update billing --retry 1,5,30 --timeout 10",
    )
)
def update(
    ctx: typer.Context,
    which: Which,
    name: Annotated[str | None, typer.Option(help="A new name.")] = None,
    pattern: Annotated[str | None, typer.Option(metavar="P", help="Which types it gets.")] = None,
    target: Annotated[str | None, typer.Option(metavar="URL", help="Where events go.")] = None,
    filters: Filters = None,
    mode: Mode = None,
    pool: Pool = None,
    retry: Retry = None,
    timeout_s: Timeout = None,
    header: Headers = None,
    dead_letter_topic: DeadLetters = None,
    endpoint: EndpointOption = None,
    as_json: AsJson = False,
) -> None:
    """Change what is given; headers and filters are replaced as a whole."""
    named = {"name": name, "pattern": pattern, "target": target}
    change = {
        **{key: value for key, value in named.items() if value is not None},
        **_options(filters, mode, pool, retry, timeout_s, header, dead_letter_topic),
    }
    client = connect(ctx, endpoint)
    _show(client.send("PATCH", _path(client, which), change), as_json=as_json)


@app.command(epilog=examples("penstock subscriptions pause billing"))
def pause(ctx: typer.Context, which: Which, endpoint: EndpointOption = None, as_json: AsJson = False) -> None:
    """Deliver nothing more for now; what is published meanwhile waits."""
    client = connect(ctx, endpoint)
    _show(client.send("POST", f"{_path(client, which)}/pause"), as_json=as_json)


@app.command(epilog=examples("penstock subscriptions resume billing"))
def resume(ctx: typer.Context, which: Which, endpoint: EndpointOption = None, as_json: AsJson = False) -> None:
    """Deliver again, beginning with what has waited."""
    client = connect(ctx, endpoint)
    _show(client.send("POST", f"{_path(client, which)}/resume"), as_json=as_json)


@app.command(epilog=examples("penstock subscriptions delete billing", "penstock subscriptions delete billing --yes"))
def delete(
    ctx: typer.Context, which: Which, yes: Yes = False, endpoint: EndpointOption = None, as_json: AsJson = False
) -> None:
    """Remove a subscription and cancel its waiting jobs, after asking; --json does not ask."""
    client = connect(ctx, endpoint)
    path = _path(client, which)
    if not (yes or as_json):
        typer.confirm(f"delete the subscription {which} and cancel its waiting jobs?", abort=True, err=True)
    answer = client.send("DELETE", path)
    if as_json:
        print_json(answer.json)
        return
    from penstock.events.api.subscriptions import SubscriptionRemoved

    removed = answer.read_as(SubscriptionRemoved)
    print_table(("deleted", "cancelled jobs"), [(removed.id, str(removed.cancelled_jobs))])


@app.command(
    "rotate-secret",
    epilog=examples(
        "penstock subscriptions rotate-secret billing",
        "penstock subscriptions rotate-secret billing --finish",
        "penstock subscriptions rotate-secret billing --at-once",
    ),
)
def rotate_secret(
    ctx: typer.Context,
    which: Which,
    finish: Annotated[bool, typer.Option("--finish", help="Make none: sign with the newest secret alone.")] = False,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Sign with the new one alone, as when the previous one has leaked.")
    ] = False,
    endpoint: EndpointOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a new secret; deliveries are signed with the previous one too, until --finish."""
    if finish and at_once:
        raise typer.BadParameter("give one of --finish and --at-once")
    client = connect(ctx, endpoint)
    path = _path(client, which)
    answer = (
        client.send("POST", f"{path}/finish-rotation")
        if finish
        else client.send("POST", f"{path}/rotate-secret", {"keepPrevious": not at_once})
    )
    if as_json:
        print_json(answer.json)
        return
    from penstock.events.api.subscriptions import Rotated, RotationFinished

    if finish:
        print_table(("secrets that sign",), [(str(answer.read_as(RotationFinished).secrets),)])
    else:
        rotated = answer.read_as(Rotated)
        print_table(("secrets that sign", "new secret, shown this once"), [(str(rotated.secrets), rotated.secret)])


@app.command(
    "test", epilog=examples("penstock subscriptions test billing", "penstock subscriptions test billing --json")
)
def send_test(ctx: typer.Context, which: Which, endpoint: EndpointOption = None, as_json: AsJson = False) -> None:
    """Deliver a test event now; exit code 1 if it is not accepted."""
    from penstock.events.api.trial import Trial

    client = connect(ctx, endpoint)
    answer = client.send("POST", f"{_path(client, which)}/test")
    trial = answer.read_as(Trial)
    if as_json:
        print_json(answer.json)
    else:
        status = "" if trial.status_code is None else str(trial.status_code)
        told = printable(trial.error or trial.response or "")
        row = ("yes" if trial.delivered else "no", status, f"{trial.duration_ms} ms", told)
        print_table(("delivered", "status", "took", "response"), [row])
    if not trial.delivered:
        raise typer.Exit(FAILURE)


def _options(
    filters: list[str] | None,
    mode: str | None,
    pool: str | None,
    retry: str | None,
    timeout_s: float | None,
    header: list[str] | None,
    dead_letter_topic: str | None,
) -> dict[str, object]:
    given: dict[str, object] = {
        "filter": _conditions(filters) if filters else None,
        "mode": None if mode is None else mode.upper(),
        "pool": pool,
        "retryDelaysS": None if retry is None else _delays(retry),
        "timeoutS": timeout_s,
        "headers": pairs(header, "--header") if header else None,
        "deadLetterTopic": dead_letter_topic,
    }
    return {name: value for name, value in given.items() if value is not None}


def _conditions(filters: list[str]) -> list[dict[str, object]]:
    return [
        {"attribute": attribute, "comparison": "in", "values": values.split(",")}
        for attribute, values in pairs(filters, "--filter").items()
    ]


def _delays(text: str) -> list[float]:
    try:
        return [float(json.loads(part)) for part in text.split(",") if part.strip()]
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(
            f"{text!r} is not a list of seconds such as 5,60,3600", param_hint="--retry"
        ) from error


def _path(client: "ApiClient", which: str) -> str:
    """The path of a subscription: the one that has this name, else this id."""
    from penstock.events.api.subscriptions import SubscriptionList

    found = client.get_all(PATH, "subscriptions").read_as(SubscriptionList).subscriptions
    named = [each.id for each in found if each.name == which]
    if len(named) > 1:
        raise FailedPrecondition(f"several tenants have a subscription {which!r}; give one of the ids {named}")
    return f"{PATH}/{path_part(named[0] if named else which)}"


def _show(answer: "ApiAnswer", *, as_json: bool) -> None:
    if as_json:
        print_json(answer.json)
        return
    from penstock.events.api.subscription_types import SubscriptionView

    _print(answer.read_as(SubscriptionView))


def _print(*shown: "SubscriptionView") -> None:
    rows = [
        (each.id, each.name, each.pattern, each.target, each.mode, each.pool, "yes" if each.paused else "no")
        for each in shown
    ]
    print_table(("id", "name", "pattern", "target", "mode", "pool", "paused"), rows)
