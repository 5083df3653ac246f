"""`penstock changes`: what people changed through the API."""

from typing import Annotated

import typer

from penstock.cli.events.connection import EndpointOption, connect
from penstock.cli.family import examples
from penstock.cli.output import AsJson, print_json, print_table

EXAMPLES = examples("penstock changes", "penstock changes --limit 20 --json")


def changes(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where the last page ended.", metavar="CURSOR")] = None,
    endpoint: EndpointOption = None,
    as_json: AsJson = False,
) -> None:
    """Show who changed what through the API, the newest first."""
    from penstock.events.api.changes import PATH, ChangeList

    answer = connect(ctx, endpoint).get(PATH, {"limit": limit, "cursor": cursor})
    if as_json:
        print_json(answer.json)
        return
    page = answer.read_as(ChangeList)
    rows = [
        [f"{change.at:%Y-%m-%d %H:%M:%S}", change.who, change.action, " ".join(change.target.values()), change.detail]
        for change in page.changes
    ]
    print_table(["at (UTC)", "who", "what", "which", "body"], rows)
    if page.cursor is not None:
        typer.echo(f"more with --cursor {page.cursor}", err=True)
