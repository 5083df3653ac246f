"""`penstock changes`: what people changed through the API."""

import typer

from penstock.cli.events.connection import connect
from penstock.cli.family import examples
from penstock.cli.output import print_json, print_table, printable
from penstock.cli.parameters import ApiEndpoint, AsJson, Cursor, Limit

EXAMPLES = examples("penstock changes", "penstock changes --limit 20 --json")


def changes(
    ctx: typer.Context, limit: Limit = 50, cursor: Cursor = None, endpoint: ApiEndpoint = None, as_json: AsJson = False
) -> None:
    """Show who changed what through the API, the newest first."""
    with connect(ctx, endpoint) as client:
        page = client.change_page(limit, cursor)
    if as_json:
        print_json(page)
        return
    rows = [
        [f"{change.at:%Y-%m-%d %H:%M:%S}", change.who, printable(change.summary), printable(change.detail)]
        for change in page.changes
    ]
    print_table(["at (UTC)", "who", "what", "body"], rows)
    if page.cursor is not None:
        typer.echo(f"for more: --cursor {page.cursor}", err=True)
