"""`penstock event-types`: the catalogue of event types, with schemas that published events are compared with."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.events.connection import connect
from penstock.cli.events.publish import read_json
from penstock.cli.failures import FAILURE
from penstock.cli.family import examples, family
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import ApiEndpoint, AsJson

if TYPE_CHECKING:
    from msgspec import Raw

    from penstock.client import EventType, EventTypeBody

Type: TypeAlias = Annotated[str, typer.Argument(metavar="TYPE", help="The type of events, such as orders:placed.")]
_FIRST_VERSION = "1"


class OnMismatch(StrEnum):
    """What becomes of events that do not meet their schema: `client.Validation`, imported only when it is needed."""

    REJECT = "reject"
    WARN = "warn"
    OFF = "off"


app = family(
    "Describe event types, and check events by their schemas.",
    "penstock event-types set orders:placed --description 'An order was placed.' --schema @order.json",
    "penstock event-types validate orders:placed --data '{\"total\": 7}'",
    "penstock event-types export --asyncapi",
)


@app.callback()
def event_types() -> None:
    """Describe event types, and check events by their schemas."""


@app.command("list", epilog=examples("penstock event-types list", "penstock event-types list --json"))
def list_types(ctx: typer.Context, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """List the catalogue."""
    with connect(ctx, endpoint) as client:
        found = client.event_types()
    print_json({"eventTypes": found}) if as_json else _print(*found)


@app.command(epilog=examples("penstock event-types show orders:placed"))
def show(ctx: typer.Context, event_type: Type, endpoint: ApiEndpoint = None) -> None:
    """Show a type with its schemas and examples, as JSON that `set --definition` takes."""
    with connect(ctx, endpoint) as client:
        print_json(client.event_type(event_type))


@app.command(
    "set",
    epilog=examples(
        "penstock event-types set orders:placed --schema @order.json --example @placed.json --validation reject",
        "penstock event-types set orders:placed --schema @order-2.json --schema-version 2",
        "penstock event-types set orders:placed --definition @orders-placed.json",
    ),
)
def set_type(
    ctx: typer.Context,
    event_type: Type,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="What has happened.")] = None,
    schema: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", help="A JSON Schema of the data; @FILE reads a file, @- standard input."),
    ] = None,
    schema_version: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The version of --schema and --example; a new one becomes the newest, another changes."
        ),
    ] = _FIRST_VERSION,
    example: Annotated[
        list[str] | None,
        typer.Option(metavar="JSON|@FILE", help="Data that meets the schema; repeatable, replaces earlier ones."),
    ] = None,
    validation: Annotated[
        OnMismatch | None,
        typer.Option(help="Events that do not meet the schema: reject, warn in the receipt, or off; at first warn."),
    ] = None,
    definition: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="The whole type, as `show` prints it; replaces all of it.")
    ] = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Add a type to the catalogue, or change what is given of it."""
    parts = (description, schema, example, validation)
    if definition is not None and any(each is not None for each in parts):
        raise typer.BadParameter("it replaces all of the type: give no other option", param_hint="--definition")
    whole = None if definition is None else read_json(definition, "--definition")
    version_schema = None if schema is None else read_json(schema, "--schema")
    shown = None if example is None else [read_json(each, "--example") for each in example]
    from msgspec.structs import replace

    from penstock.client import EventTypeBody, Validation

    with connect(ctx, endpoint) as client:
        if whole is not None:
            body = _body(whole)
        else:
            known = {each.type: each for each in client.event_types()}.get(event_type)
            body = EventTypeBody() if known is None else _settings(known)
            if description is not None:
                body = replace(body, description=description)
            if validation is not None:
                body = replace(body, validation=Validation(validation))
            if version_schema is not None or shown is not None:
                body = _with_version(body, schema_version, version_schema, shown)
        made = client.put_event_type(event_type, body)
    print_json(made) if as_json else _print(made)


@app.command(epilog=examples("penstock event-types delete orders:placed"))
def delete(ctx: typer.Context, event_type: Type, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """Remove a type from the catalogue; its events are of an unknown type from now on."""
    with connect(ctx, endpoint) as client:
        deleted = client.delete_event_type(event_type)
    print_json(deleted) if as_json else print_table(("deleted",), [(deleted.type,)])


@app.command(
    epilog=examples(
        "penstock event-types validate orders:placed --data '{\"total\": 7}'",
        "penstock event-types validate orders:placed --data @- --schema-version 1",
    )
)
def validate(
    ctx: typer.Context,
    event_type: Type,
    data: Annotated[
        str, typer.Option("--data", metavar="JSON|@FILE", help="The data; @FILE reads a file, @- standard input.")
    ],
    schema_version: Annotated[
        str | None, typer.Option(metavar="NAME", help="The version to compare with; the newest unless given.")
    ] = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Compare data with a type's schema, without publishing it; the exit code is 1 if it does not meet it."""
    content = read_json(data, "--data")
    with connect(ctx, endpoint) as client:
        found = client.check_data(event_type, content, schema_version)
    if as_json:
        print_json(found)
    elif found.valid:
        typer.echo("valid" if found.version else f"{event_type} has no schema: any data is valid")
    else:
        typer.echo("\n".join(found.problems), err=True)
    if not found.valid:
        raise typer.Exit(FAILURE)


@app.command(epilog=examples("penstock event-types export --asyncapi > asyncapi.json"))
def export(
    ctx: typer.Context,
    asyncapi: Annotated[bool, typer.Option("--asyncapi", help="As an AsyncAPI 3.0 document.")] = False,
    endpoint: ApiEndpoint = None,
) -> None:
    """Print the whole catalogue as JSON: as the API has it, or as an AsyncAPI document for generators."""
    with connect(ctx, endpoint) as client:
        print_json(client.asyncapi() if asyncapi else {"eventTypes": client.event_types()})


def _body(content: "Raw") -> "EventTypeBody":
    import msgspec

    from penstock.client import EventTypeBody

    try:
        given = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        # `show` prints the type too, which the command has as its argument.
        kept = {name: value for name, value in given.items() if name != "type"}
        return msgspec.json.decode(msgspec.json.encode(kept), type=EventTypeBody)
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"it is not an event type: {error}", param_hint="--definition") from error


def _settings(known: "EventType") -> "EventTypeBody":
    from penstock.client import EventTypeBody

    return EventTypeBody(description=known.description, validation=known.validation, versions=known.versions)


def _with_version(body: "EventTypeBody", name: str, schema: "Raw | None", shown: "list[Raw] | None") -> "EventTypeBody":
    import msgspec

    from penstock.client import EventTypeVersion

    before = {each.version: each for each in body.versions}
    if schema is None and name not in before:
        raise typer.BadParameter(f"there is no version {name!r} of it yet: give --schema", param_hint="--example")
    try:
        given = before[name].schema if schema is None else msgspec.json.decode(schema, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"it is not a JSON Schema: {error}", param_hint="--schema") from error
    kept = before[name].examples if name in before else ()
    values = kept if shown is None else [msgspec.json.decode(each) for each in shown]
    changed = {**before, name: EventTypeVersion(version=name, schema=given, examples=values)}
    return msgspec.structs.replace(body, versions=list(changed.values()))


def _print(*shown: "EventType") -> None:
    rows = [
        (
            each.type,
            ", ".join(version.version for version in each.versions) or "none",
            each.validation if each.versions else "none",
            each.description,
        )
        for each in shown
    ]
    print_table(("type", "versions", "validation", "description"), rows)
