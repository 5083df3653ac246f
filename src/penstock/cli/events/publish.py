"""`penstock publish`: an event, to every subscription that matches it.

Data given on the command line: as it is, from a file (@FILE), or from standard input (@-).
"""

import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from penstock.cli.events.connection import connect
from penstock.cli.family import examples
from penstock.cli.output import print_json, print_table, yes_or_no
from penstock.cli.parameters import ApiEndpoint, AsJson, HighPriority, Tenant, pairs

DataOption: TypeAlias = Annotated[
    str | None, typer.Option("--data", metavar="JSON|@FILE", help="The data; @FILE reads a file, @- standard input.")
]
ContentTypeOption: TypeAlias = Annotated[
    str, typer.Option("--content-type", metavar="TYPE", help="The type of the data, if it is not JSON.")
]


def read_data(given: str | None, content_type: str) -> object:
    """Return the data as the client takes it: JSON as it was written, else bytes; None if none was given."""
    content = _content(given)
    if content is None or not content_type.partition(";")[0].strip().lower().endswith(("/json", "+json")):
        return content
    import msgspec

    try:
        return msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(
            f"it is not JSON: {error}; give --content-type if it is something else", param_hint="--data"
        ) from error


def _content(given: str | None) -> bytes | None:
    if given is None or not given.startswith("@"):
        return None if given is None else given.encode()
    if given == "@-":
        return sys.stdin.buffer.read()
    try:
        return Path(given[1:]).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {given[1:]}: {error.strerror}", param_hint="--data") from error


EXAMPLES = examples(
    """penstock publish orders:created --key customer-1 --data '{"total": 7}'""",
    "penstock publish orders:created --key customer-1 --data @order.json --id order-7",
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
    subject: Annotated[str | None, typer.Option(metavar="TEXT", help="What the event is about.")] = None,
    tenant: Tenant = None,
    attribute: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="An attribute that filters can use; repeatable.")
    ] = None,
    high_priority: HighPriority = None,
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
    if as_json:
        print_json({"events": [receipt]})
    else:
        print_table(("id", "type", "new"), [(receipt.id, event_type, yes_or_no(receipt.is_new))])
