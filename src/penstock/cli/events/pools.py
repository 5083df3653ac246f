"""`penstock pools`: how many deliveries run at once, and how many per minute."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.events.connection import connect
from penstock.cli.family import examples, family
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import ApiEndpoint, AsJson

if TYPE_CHECKING:
    from penstock.client import Pool

Code: TypeAlias = Annotated[str, typer.Argument(metavar="CODE", help="The pool.")]

app = family(
    "Set the pace of deliveries.",
    "penstock pools list",
    "penstock pools set SLOW --concurrency 2 --rate 60",
)


@app.callback()
def pools() -> None:
    """Set the pace of deliveries."""


@app.command("list", epilog=examples("penstock pools list", "penstock pools list --json"))
def list_pools(ctx: typer.Context, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """List all pools with their limits."""
    with connect(ctx, endpoint) as client:
        found = client.pools()
    if as_json:
        print_json({"pools": found, "cursor": None})
    else:
        _print(*found)


@app.command("set", epilog=examples("penstock pools set SLOW --concurrency 2 --rate 60"))
def set_pool(
    ctx: typer.Context,
    code: Code,
    concurrency: Annotated[int, typer.Option(min=1, metavar="N", help="Deliveries at the same time.")] = 10,
    rate: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Deliveries per minute; no limit unless given.")
    ] = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Create a pool, or change it; the router of this API follows immediately, others at their next sync."""
    with connect(ctx, endpoint) as client:
        pool = client.put_pool(code, concurrency, rate)
    print_json(pool) if as_json else _print(pool)


@app.command(epilog=examples("penstock pools delete SLOW"))
def delete(ctx: typer.Context, code: Code, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """Remove a pool; its jobs then run in the router's default pool."""
    with connect(ctx, endpoint) as client:
        pool = client.delete_pool(code)
    print_json(pool) if as_json else print_table(("deleted",), [(code,)])


def _print(*shown: "Pool") -> None:
    rows = [(pool.code, str(pool.concurrency), str(pool.rate_limit_per_minute or "none")) for pool in shown]
    print_table(("code", "concurrency", "rate per minute"), rows)
