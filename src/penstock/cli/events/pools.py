"""`penstock pools`: how many deliveries run at once, and how many per minute."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.events.connection import EndpointOption, connect, path_part
from penstock.cli.family import examples, family
from penstock.cli.output import AsJson, print_json, print_table

if TYPE_CHECKING:
    from penstock.events.api.pools import PoolView

PATH = "/api/v1/pools"

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
def list_pools(ctx: typer.Context, endpoint: EndpointOption = None, as_json: AsJson = False) -> None:
    """List all pools with their limits."""
    answer = connect(ctx, endpoint).get_all(PATH, "pools")
    if as_json:
        print_json(answer.json)
        return
    from penstock.events.api.pools import PoolList

    _print(*answer.read_as(PoolList).pools)


@app.command("set", epilog=examples("penstock pools set SLOW --concurrency 2 --rate 60"))
def set_pool(
    ctx: typer.Context,
    code: Code,
    concurrency: Annotated[int, typer.Option(min=1, help="Deliveries at once.")] = 10,
    rate: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Deliveries per minute; no limit unless given.")
    ] = None,
    endpoint: EndpointOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a pool, or change it; the router of this API follows at once, others at their next sync."""
    body = {"concurrency": concurrency, "rateLimitPerMinute": rate}
    answer = connect(ctx, endpoint).send("PUT", f"{PATH}/{path_part(code)}", body)
    if as_json:
        print_json(answer.json)
        return
    from penstock.events.api.pools import PoolView

    _print(answer.read_as(PoolView))


@app.command(epilog=examples("penstock pools delete SLOW"))
def delete(ctx: typer.Context, code: Code, endpoint: EndpointOption = None, as_json: AsJson = False) -> None:
    """Remove a pool; its jobs then run in the router's default pool."""
    answer = connect(ctx, endpoint).send("DELETE", f"{PATH}/{path_part(code)}")
    if as_json:
        print_json(answer.json)
        return
    print_table(("deleted",), [(code,)])


def _print(*shown: "PoolView") -> None:
    rows = [
        (
            pool.code,
            str(pool.concurrency),
            "none" if pool.rate_limit_per_minute is None else str(pool.rate_limit_per_minute),
        )
        for pool in shown
    ]
    print_table(("code", "concurrency", "rate per minute"), rows)
