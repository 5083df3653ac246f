"""`penstock publish`: an event, to everybody who wants it.

Data given on the command line: as it is, from a file (@FILE), or from standard input (@-).
"""

import json
import sys
from base64 import b64encode
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from penstock.cli.events.connection import EndpointOption, connect
from penstock.cli.family import examples
from penstock.cli.output import AsJson, print_json, print_table
from penstock.cli.queue.messages import pairs

DataOption: TypeAlias = Annotated[
    str | None, typer.Option("--data", metavar="JSON|@FILE", help="The data; @FILE reads a file, @- standard input.")
]
ContentTypeOption: TypeAlias = Annotated[
    str, typer.Option("--content-type", metavar="TYPE", help="What the data is, if it is not JSON.")
]


def read_data(given: str | None) -> bytes | None:
    """The bytes that were meant."""
    if given is None or not given.startswith("@"):
        return None if given is None else given.encode()
    if given == "@-":
        return sys.stdin.buffer.read()
    try:
        return Path(given[1:]).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {given[1:]}: {error.strerror}", param_hint="--data") from error


def data_members(given: str | None, content_type: str, name: str, base64_name: str) -> dict[str, object]:
    """The members of a request that carry the data: as JSON if it is JSON, else in base64."""
    content = read_data(given)
    if content is None:
        return {}
    if content_type.partition(";")[0].strip().lower().endswith(("/json", "+json")):
        try:
            return {name: json.loads(content)}
        except ValueError as error:
            raise typer.BadParameter(
                f"it is not JSON: {error}; give --content-type if it is something else", param_hint="--data"
            ) from error
    return {base64_name: b64encode(content).decode()}


EXAMPLES = examples(
    """penstock publish orders:created --key customer-1 --data '{"total": 7}'""",
    "penstock publish orders:created --key customer-1 --data @order.json --id order-7",
    "penstock publish orders:created --attribute region=eu --json",
)


def publish(
    ctx: typer.Context,
    event_type: Annotated[str, typer.Argument(metavar="TYPE", help="What happened, such as orders:created.")],
    key: Annotated[str | None, typer.Option(help="Events of one key arrive in order.", metavar="K")] = None,
    data: DataOption = None,
    content_type: ContentTypeOption = "application/json",
    source: Annotated[str, typer.Option(help="Who tells it.")] = "/penstock/cli",
    event_id: Annotated[
        str | None, typer.Option("--id", help="The event's id; the same id and source again change nothing.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="What it happened to.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose event it is.")] = None,
    attribute: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="An attribute that filters can ask for; repeatable.")
    ] = None,
    endpoint: EndpointOption = None,
    as_json: AsJson = False,
) -> None:
    """Publish an event to all who want it, in order per key."""
    import uuid

    named = {"subject": subject, "partitionkey": key, "tenant": tenant}
    event = {
        "specversion": "1.0",
        "id": event_id or str(uuid.uuid4()),
        "source": source,
        "type": event_type,
        **pairs(attribute, "--attribute"),
        **{name: value for name, value in named.items() if value is not None},
        "datacontenttype": content_type,
        **data_members(data, content_type, "data", "data_base64"),
    }
    answer = connect(ctx, endpoint).send("POST", "/api/v1/events", event)
    if as_json:
        print_json(answer.json)
        return
    from penstock.events.accept.routes import EventReceipts

    (receipt,) = answer.read_as(EventReceipts).events
    print_table(("id", "type", "new"), [(receipt.id, event_type, "yes" if receipt.is_new else "no")])
