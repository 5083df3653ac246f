"""`penstock serve sqs`: the SQS-compatible server."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import given_or, load_config
from penstock.cli.parameters import DatabaseUrl, DataDir, Memory, host_option, port_option

EXAMPLES = examples(
    "penstock serve sqs --memory",
    "penstock serve sqs --data /var/lib/penstock --credentials keys.toml --host 0.0.0.0",
    "penstock serve sqs --database postgresql://penstock@db/penstock",
)


class ScopesChoice(StrEnum):
    """The values of `sqs.scopes`."""

    REQUEST = "request"
    ONE = "one"


def sqs(
    ctx: typer.Context,
    port: Annotated[int | None, port_option("the server", "ports.sqs", 9324)] = None,
    host: Annotated[str, host_option("--credentials")] = "127.0.0.1",
    data: DataDir = None,
    database: DatabaseUrl = None,
    memory: Memory = False,
    credentials: Annotated[
        Path | None, typer.Option(help="TOML file of access keys; requests must then be signed.", metavar="FILE")
    ] = None,
    region: Annotated[str, typer.Option(metavar="NAME", help="Region of requests without credentials.")] = "us-east-1",
    account: Annotated[
        str, typer.Option(metavar="ID", help="Account of keys that have none of their own.")
    ] = "000000000000",
    scopes: Annotated[
        ScopesChoice | None,
        typer.Option(help="Queues a request sees: those of the region and account of its credentials, or all (one)."),
    ] = None,
    fifo_partition_map: Annotated[
        str, typer.Option(help="Databases of a queue's partitions: orders.fifo:4=a,a,b,b", metavar="MAP")
    ] = "",
    give_up: Annotated[
        list[str] | None,
        typer.Option(help="Queue or database that is lost for good: delete what is left of it.", metavar="NAME"),
    ] = None,
) -> None:
    """Serve the SQS API: any AWS SDK works by setting its endpoint URL, and the AWS CLI by --endpoint-url.

    Without --data, --database or --memory, the data directory of the configuration is used.
    """
    from penstock.cli.serve.stores import named_stores, store_of
    from penstock.edge.clock import SystemClock
    from penstock.edge.node import process_ids
    from penstock.engine import Window
    from penstock.http.server import run
    from penstock.ops.config import QueueScopes
    from penstock.sqs import (
        OWN_DATABASE,
        ServiceSettings,
        SqsServerSettings,
        load_credentials,
        parse_partition_map,
        serve_sqs,
    )

    config = load_config(ctx)
    others = named_stores(config)
    settings = SqsServerSettings(
        host=host,
        port=given_or(port, config.ports.sqs),
        service=ServiceSettings(
            region=region,
            account=account,
            trusted_proxies=config.sqs.trusted_proxies,
            scopes=QueueScopes(given_or(scopes, config.sqs.scopes)),
            default_partitions=config.sqs.default_partitions,
            placements=parse_partition_map(fifo_partition_map, set(others)),
            given_up=tuple(give_up or ()),
        ),
        window=Window(
            messages=config.queue.window_messages,
            size_bytes=config.queue.window_bytes,
            lookahead=config.queue.lookahead_messages,
        ),
    )
    stores = {OWN_DATABASE: store_of(config, "sqs", data=data, database=database, memory=memory), **others}
    keys = load_credentials(credentials) if credentials is not None else None
    run(serve_sqs(stores, SystemClock(), process_ids(config.node.id), settings, keys))
