"""`penstock publish`: an event, to everybody who wants it."""

from typing import Annotated

import typer

from penstock.cli.api_connection import EndpointOption, connect
from penstock.cli.family import examples
from penstock.cli.given_data import ContentTypeOption, DataOption, data_members
from penstock.cli.output import AsJson, print_json, print_table
from penstock.cli.queue_text import pairs

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
