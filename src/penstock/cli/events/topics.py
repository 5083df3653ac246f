"""`penstock topics`: which Pub/Sub topics feed events."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.events.connection import connect
from penstock.cli.family import examples, family
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import ApiEndpoint, AsJson, Tenant

if TYPE_CHECKING:
    from penstock.client import Feed

Topic: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The topic: projects/PROJECT/topics/NAME, or a name of the project penstock."),
]

app = family(
    "Let Pub/Sub topics feed events.",
    "penstock topics feed orders --type orders",
    "penstock topics list",
)


@app.callback()
def topics() -> None:
    """Let Pub/Sub topics feed events."""


@app.command(
    epilog=examples(
        "penstock topics feed orders --type orders:placed",
        "penstock topics feed projects/shop/topics/orders --type-attribute eventType --tenant acme",
    )
)
def feed(
    ctx: typer.Context,
    topic: Topic,
    event_type: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE", help="The type of the events; the topic's name unless given."),
    ] = None,
    type_attribute: Annotated[
        str | None,
        typer.Option("--type-attribute", metavar="NAME", help="The attribute of messages that has the type, if any."),
    ] = None,
    tenant: Tenant = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Let the messages of a topic become events from now on, each once, in order per ordering key.

    The topic is created if it does not exist. An event's key is the message's ordering key, its id the message's id.
    """
    with connect(ctx, endpoint) as client:
        made = client.feed(topic, type=event_type, type_attribute=type_attribute, tenant=tenant)
    print_json(made) if as_json else _print(made)


@app.command("list", epilog=examples("penstock topics list", "penstock topics list --json"))
def list_feeds(ctx: typer.Context, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """List the topics that feed events."""
    with connect(ctx, endpoint) as client:
        found = client.feeds()
    print_json({"feeds": found}) if as_json else _print(*found)


@app.command(epilog=examples("penstock topics unfeed orders"))
def unfeed(ctx: typer.Context, topic: Topic, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """Stop feeding events; messages that have not become events yet become none."""
    with connect(ctx, endpoint) as client:
        removed = client.unfeed(topic)
    print_json(removed) if as_json else _print(removed)


def _print(*shown: "Feed") -> None:
    rows = [(each.topic, each.type, each.type_attribute or "none", each.tenant or "none") for each in shown]
    print_table(("topic", "type", "type from attribute", "tenant"), rows)
