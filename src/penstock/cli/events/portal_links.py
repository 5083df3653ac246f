"""`penstock portal-links`: links with which customers see and mend their own deliveries."""

from typing import Annotated

import typer

from penstock.cli.events.connection import connect, subscription_of
from penstock.cli.family import examples, family
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import ApiEndpoint, AsJson, GivenTenant

app = family(
    "Give customers a page of their own.",
    "penstock portal-links create --tenant acme --hours 24",
    "penstock portal-links revoke --tenant acme",
)


@app.callback()
def portal_links() -> None:
    """Give customers a page of their own."""


@app.command(
    epilog=examples(
        "penstock portal-links create --tenant acme",
        "penstock portal-links create --tenant acme --subscription billing --hours 2 --base-url https://hooks.shop.example",
    )
)
def create(
    ctx: typer.Context,
    tenant: GivenTenant,
    subscription: Annotated[
        str | None, typer.Option(metavar="NAME|ID", help="Only this subscription of the tenant.")
    ] = None,
    hours: Annotated[float, typer.Option(min=0.01, metavar="N", help="How long the link is valid.")] = 24,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where customers reach this API; else its own address.")
    ] = None,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Create a link to the portal and show it, only now. Whoever has it may use it until it expires."""
    from penstock.cli.options import load_config

    with connect(ctx, endpoint) as client:
        only = None if subscription is None else subscription_of(client, subscription).id
        link = client.create_portal_link(tenant, subscription_id=only, hours=hours)
    url = (base_url or endpoint or load_config(ctx).api.endpoint).rstrip("/") + link.path
    if as_json:
        print_json({"link": link, "url": url})
        return
    typer.echo(url)
    typer.echo(f"valid until {link.expires_at:%Y-%m-%d %H:%M} UTC; `penstock portal-links revoke` ends it", err=True)


@app.command(epilog=examples("penstock portal-links revoke --tenant acme"))
def revoke(
    ctx: typer.Context,
    tenant: GivenTenant,
    endpoint: ApiEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """End all links of a tenant at once, by replacing the key that signs them."""
    with connect(ctx, endpoint) as client:
        revoked = client.revoke_portal_links(tenant)
    print_json(revoked) if as_json else print_table(("revoked",), [(revoked.tenant,)])
