"""`penstock subscriptions`: which events are delivered, and where."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.events.connection import connect, subscription_of
from penstock.cli.events.publish import Attributes, ContentTypeOption, DataOption, Subject, read_data
from penstock.cli.events.subscription_options import (
    TARGET_HELP,
    Body,
    ClientCert,
    ClientKey,
    DeadLetters,
    Filters,
    OAuth2Audience,
    OAuth2ClientId,
    OAuth2Scope,
    OAuth2Secret,
    OAuth2Url,
    Retry,
    Signature,
    Target,
    Timeout,
    Unkeyed,
    certificate_of,
    delivery_options,
    oauth2_of,
    read_secret,
)
from penstock.cli.failures import FAILURE
from penstock.cli.family import examples, family
from penstock.cli.output import print_json, print_table, printable, yes_or_no
from penstock.cli.parameters import (
    ApiEndpoint,
    AsJson,
    Headers,
    HighPriority,
    Mode,
    Pool,
    Tenant,
    Yes,
    given,
    pairs,
)

if TYPE_CHECKING:
    from penstock.client import Match, Penstock, Subscription


Which: TypeAlias = Annotated[str, typer.Argument(metavar="NAME|ID", help="The subscription, by its name or its id.")]

app = family(
    "Manage subscriptions: which events are delivered, and where.",
    "penstock subscriptions create billing --pattern 'orders:**' --target https://billing.example/hook",
    "penstock subscriptions list",
    "penstock subscriptions test billing",
)


@app.callback()
def subscriptions() -> None:
    """Manage subscriptions: which events are delivered, and where."""


@app.command("list", epilog=examples("penstock subscriptions list", "penstock subscriptions list --json"))
def list_subscriptions(ctx: typer.Context, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """List all subscriptions."""
    with connect(ctx, endpoint) as client:
        found = client.subscriptions()
    if as_json:
        print_json({"subscriptions": found, "cursor": None})
    else:
        _print(*found)


@app.command(
    epilog=examples(
        "penstock subscriptions create billing --pattern 'orders:**' --target https://billing.example/hook",
        "penstock subscriptions create eu --pattern 'orders:*:created' --target https://eu.example "
        "--filter region=eu,uk --mode NEXT_ON_ERROR --retry 5,60,3600",
        "penstock subscriptions create large --pattern 'orders:**' --target https://large.example "
        "--filter \"data.total >= 100 and data.currency in ('EUR', 'USD')\"",
        "penstock subscriptions create partner --pattern 'orders:**' --target https://partner.example "
        "--signature ed25519",
        "penstock subscriptions create erp --pattern 'orders:**' --target https://erp.example/hook "
        "--oauth2-url https://id.example/token --oauth2-client penstock --oauth2-secret - --client-cert erp.pem",
    )
)
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name, unique within its tenant.")],
    pattern: Annotated[
        str, typer.Option(metavar="PATTERN", help="Types of events; * is one segment, ** at the end is the rest.")
    ],
    target: Target,
    filters: Filters = None,
    mode: Mode = None,
    pool: Pool = None,
    unkeyed: Unkeyed = None,
    high_priority: HighPriority = None,
    retry: Retry = None,
    timeout_s: Timeout = None,
    header: Headers = None,
    dead_letter_topic: DeadLetters = None,
    body: Body = None,
    secret: Annotated[
        str | None,
        typer.Option(
            metavar="SECRET",
            help="Secret to sign with, whsec_ (or private key, whsk_) and base64; - reads it from standard input, "
            "where no one else sees it. Else a new one.",
        ),
    ] = None,
    signature: Signature = None,
    oauth2_url: OAuth2Url = None,
    oauth2_client: OAuth2ClientId = None,
    oauth2_secret: OAuth2Secret = None,
    oauth2_scope: OAuth2Scope = None,
    oauth2_audience: OAuth2Audience = None,
    client_cert: ClientCert = None,
    client_key: ClientKey = None,
    tenant: Tenant = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Create a subscription; the secret that signs its deliveries is shown only now."""
    secret = read_secret(secret)
    options = delivery_options(
        filters, mode, pool, unkeyed, high_priority, retry, timeout_s, header, dead_letter_topic, body
    )
    options |= oauth2_of(oauth2_url, oauth2_client, oauth2_secret, oauth2_scope, oauth2_audience)
    options |= certificate_of(client_cert, client_key)
    more = given(tenant=tenant, secret=secret, signature=signature)
    with connect(ctx, endpoint) as client:
        made = client.subscribe(name, pattern, target, **options, **more)
    for warning in made.warnings:
        typer.echo(f"warning: {printable(warning)}", err=True)
    if as_json:
        print_json(made)
        return
    _print(made.subscription)
    typer.echo(f"\nits secret, shown only now: {made.secret}")


@app.command(
    epilog=examples(
        "penstock subscriptions update billing --target https://new.example/hook",
        "penstock subscriptions update billing --retry 1,5,30 --timeout 10",
    )
)
def update(
    ctx: typer.Context,
    which: Which,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="A new name.")] = None,
    pattern: Annotated[str | None, typer.Option(metavar="PATTERN", help="Types of events to deliver.")] = None,
    target: Annotated[str | None, typer.Option(metavar="TARGET", help=TARGET_HELP)] = None,
    filters: Filters = None,
    mode: Mode = None,
    pool: Pool = None,
    unkeyed: Unkeyed = None,
    high_priority: HighPriority = None,
    retry: Retry = None,
    timeout_s: Timeout = None,
    header: Headers = None,
    dead_letter_topic: DeadLetters = None,
    body: Body = None,
    oauth2_url: OAuth2Url = None,
    oauth2_client: OAuth2ClientId = None,
    oauth2_secret: OAuth2Secret = None,
    oauth2_scope: OAuth2Scope = None,
    oauth2_audience: OAuth2Audience = None,
    client_cert: ClientCert = None,
    client_key: ClientKey = None,
    no_oauth2: Annotated[bool, typer.Option("--no-oauth2", help="Send no OAuth2 token any more.")] = False,
    no_client_cert: Annotated[
        bool, typer.Option("--no-client-cert", help="Show no client certificate any more.")
    ] = False,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Change the options that are given; headers and filters are replaced as a whole."""
    options = delivery_options(
        filters, mode, pool, unkeyed, high_priority, retry, timeout_s, header, dead_letter_topic, body
    )
    options |= oauth2_of(oauth2_url, oauth2_client, oauth2_secret, oauth2_scope, oauth2_audience)
    options |= certificate_of(client_cert, client_key)
    if no_oauth2:
        options["oauth2"] = None
    if no_client_cert:
        options["client_certificate"] = None
    changes = given(name=name, pattern=pattern, target=target)
    if not changes and not options:
        raise typer.BadParameter("there is nothing to change: give an option such as --target")
    with connect(ctx, endpoint) as client:
        changed = client.update_subscription(_id(client, which), **changes, **options)
    print_json(changed) if as_json else _print(changed)


@app.command(epilog=examples("penstock subscriptions pause billing"))
def pause(ctx: typer.Context, which: Which, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """Stop deliveries for now; events published meanwhile wait."""
    with connect(ctx, endpoint) as client:
        paused = client.pause(_id(client, which))
    print_json(paused) if as_json else _print(paused)


@app.command(epilog=examples("penstock subscriptions resume billing"))
def resume(ctx: typer.Context, which: Which, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """Deliver again, starting with the events that waited."""
    with connect(ctx, endpoint) as client:
        resumed = client.resume(_id(client, which))
    print_json(resumed) if as_json else _print(resumed)


@app.command(epilog=examples("penstock subscriptions delete billing", "penstock subscriptions delete billing --yes"))
def delete(
    ctx: typer.Context, which: Which, yes: Yes = False, endpoint: ApiEndpoint = None, as_json: AsJson = False
) -> None:
    """Remove a subscription and cancel its waiting jobs, after asking; --json does not ask."""
    with connect(ctx, endpoint) as client:
        subscription_id = _id(client, which)
        if not (yes or as_json):
            typer.confirm(f"delete the subscription {which} and cancel its waiting jobs?", abort=True, err=True)
        removed = client.unsubscribe(subscription_id)
    if as_json:
        print_json(removed)
    else:
        print_table(("deleted", "cancelled jobs"), [(removed.id, str(removed.cancelled_jobs))])


@app.command(
    "rotate-secret",
    epilog=examples(
        "penstock subscriptions rotate-secret billing",
        "penstock subscriptions rotate-secret billing --finish",
        "penstock subscriptions rotate-secret billing --at-once",
        "penstock subscriptions rotate-secret billing --signature ed25519",
    ),
)
def rotate_secret(
    ctx: typer.Context,
    which: Which,
    finish: Annotated[
        bool, typer.Option("--finish", help="Create none: from now on sign with the newest secret only.")
    ] = False,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Sign with the new secret only, as when the previous one has leaked.")
    ] = False,
    signature: Signature = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Create a new secret; deliveries are signed with the previous one too, until --finish."""
    if finish and (at_once or signature):
        raise typer.BadParameter("--finish goes without --at-once and --signature")
    with connect(ctx, endpoint) as client:
        if finish:
            finished = client.finish_rotation(_id(client, which))
            print_json(finished) if as_json else print_table(("signing secrets",), [(str(finished.secrets),)])
            return
        rotated = client.rotate_secret(_id(client, which), keep_previous=not at_once, **given(signature=signature))
    if as_json:
        print_json(rotated)
    else:
        print_table(("signing secrets", "new secret, shown only now"), [(str(rotated.secrets), rotated.secret)])


@app.command("public-keys", epilog=examples("penstock subscriptions public-keys billing"))
def public_keys(ctx: typer.Context, which: Which, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """Show the keys that receivers verify Ed25519 signatures with, the newest first."""
    with connect(ctx, endpoint) as client:
        keys = client.public_keys(_id(client, which))
    print_json({"keys": keys}) if as_json else print_table(("public key",), [(each,) for each in keys])


@app.command(
    "test",
    epilog=examples(
        "penstock subscriptions test billing",
        "penstock subscriptions test billing --sample orders:created --data '{\"total\": 120}' --attribute region=eu",
    ),
)
def send_test(
    ctx: typer.Context,
    which: Which,
    sample: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Deliver nothing: say whether an event of this type would match."),
    ] = None,
    data: DataOption = None,
    content_type: ContentTypeOption = "application/json",
    attribute: Attributes = None,
    subject: Subject = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Deliver a test event now, or with --sample say whether an event would match; the exit code is 1 if not."""
    if sample is not None:
        _try_sample(ctx, which, sample, data, content_type, attribute, subject, endpoint, as_json)
        return
    if data is not None or attribute or subject is not None:
        raise typer.BadParameter("give the type of the event with --sample, such as --sample orders:created")
    with connect(ctx, endpoint) as client:
        trial = client.test_subscription(_id(client, which))
    if as_json:
        print_json(trial)
    else:
        status = "" if trial.status_code is None else str(trial.status_code)
        answer = printable(": ".join(each for each in (trial.error, trial.response) if each))
        row = (yes_or_no(trial.delivered), status, f"{trial.duration_ms} ms", answer)
        print_table(("delivered", "status", "took", "response"), [row])
    if not trial.delivered:
        raise typer.Exit(FAILURE)


def _try_sample(
    ctx: typer.Context,
    which: str,
    event_type: str,
    data: str | None,
    content_type: str,
    attribute: list[str] | None,
    subject: str | None,
    endpoint: str | None,
    as_json: bool,
) -> None:
    from penstock.client import Event

    with connect(ctx, endpoint) as client:
        subscription = subscription_of(client, which)
        event = Event(
            type=event_type,
            data=read_data(data, content_type),
            content_type=content_type,
            attributes=pairs(attribute, "--attribute"),
            subject=subject,
            tenant=subscription.tenant or None,
        )
        match = client.match(subscription.id, event)
    print_json(match) if as_json else typer.echo(_why(subscription, event_type, match))
    if not match.matches:
        raise typer.Exit(FAILURE)


def _why(subscription: "Subscription", event_type: str, match: "Match") -> str:
    if match.matches:
        return f"it matches: {subscription.name} would get this event"
    if not match.pattern:
        return f"it does not match: the type {event_type} is not one of {subscription.pattern}"
    conditions = [f"{each.attribute} {each.comparison} {','.join(each.values)}".strip() for each in subscription.filter]
    wanted = " and ".join([*conditions, *([subscription.filter_expression] if subscription.filter_expression else [])])
    return f"it does not match: the filter is {wanted}"


def _id(client: "Penstock", which: str) -> str:
    return subscription_of(client, which).id


def _print(*shown: "Subscription") -> None:
    rows = [
        (each.id, each.name, each.pattern, each.target, each.mode, each.pool, yes_or_no(each.paused)) for each in shown
    ]
    print_table(("id", "name", "pattern", "target", "mode", "pool", "paused"), rows)
