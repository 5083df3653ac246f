"""`penstock serve sqs`: the SQS-compatible server."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import given_or, load_config
from penstock.cli.parameters import DatabaseUrl, DataDir, Memory, NodeName, host_option, port_option

if TYPE_CHECKING:
    from penstock.engine import Store
    from penstock.ops.config import Config
    from penstock.sqs.nodes import SqsNodeSettings

EXAMPLES = examples(
    "penstock serve sqs --memory",
    "penstock serve sqs --data /var/lib/penstock --credentials keys.toml --host 0.0.0.0",
    "penstock serve sqs --database postgresql://penstock@db/penstock",
    "penstock serve sqs --database postgresql://penstock@db/penstock --node a --advertise http://10.0.0.1:9324",
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
        Path | None,
        typer.Option(help="TOML file of access keys, else sqs.credentials; requests must be signed.", metavar="FILE"),
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
    node: NodeName = None,
    advertise: Annotated[
        str | None,
        typer.Option(help="Address at which the other nodes reach this one.", metavar="URL", show_default="its own"),
    ] = None,
    give_up: Annotated[
        list[str] | None,
        typer.Option(help="Queue or database that is lost for good: delete what is left of it.", metavar="NAME"),
    ] = None,
) -> None:
    """Serve the SQS API: any AWS SDK works by setting its endpoint URL, and the AWS CLI by --endpoint-url.

    Without --data, --database or --memory, the data directory of the configuration is used.
    """
    from penstock.cli.options import database_url
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
        parts_credentials,
        serve_sqs,
    )

    config = load_config(ctx)
    others = named_stores(config)
    node = given_or(node, config.cluster.node) or None
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
            durable_leases=config.sqs.durable_leases or node is not None,
            recreate_after_s=config.sqs.recreate_after_s,
        ),
        window=Window(
            messages=config.queue.window_messages,
            size_bytes=config.queue.window_bytes,
            lookahead=config.queue.lookahead_messages,
        ),
    )
    file = credentials or (Path(config.sqs.credentials).expanduser() if config.sqs.credentials else None)
    keys = load_credentials(file) if file is not None else None
    if config.sqs.parts_key:
        keys = parts_credentials(config.sqs.parts_key, keys)
    clock, ids = SystemClock(), process_ids(config.node.id)
    if node is not None:
        from penstock.sqs.nodes import serve_node

        run(serve_node(*_as_node(config, node, advertise, host, data, database, memory), clock, ids, settings, keys))
        return
    if advertise is not None:
        raise typer.BadParameter("--advertise needs --node NAME")
    if not memory and (url := database_url(config, data, database)):
        # Loads PostgreSQL's driver, a fifth of the time that a server takes to start.
        from penstock.sqs.nodes import require_one_shard

        require_one_shard(url)
    own = store_of(config, "sqs", data=data, database=database, memory=memory)
    run(serve_sqs({OWN_DATABASE: own, **others}, clock, ids, settings, keys))


def _as_node(
    config: "Config",
    name: str,
    advertise: str | None,
    host: str,
    data: Path | None,
    database: str | None,
    memory: bool,
) -> "tuple[Callable[[str], dict[str, Store]], SqsNodeSettings]":
    """Return the stores of a node's queues, opened whenever it takes them over, and which node it is."""
    from penstock.cli.options import database_url
    from penstock.cli.serve.stores import named_stores, store_of
    from penstock.http.server import is_loopback
    from penstock.sqs import OWN_DATABASE
    from penstock.sqs.nodes import SqsNodeSettings

    url = "" if memory else database_url(config, data, database)
    if not url:
        raise typer.BadParameter("--node needs a database that all nodes share: --database postgresql://…")
    if any("://" not in entry.partition("=")[2] for entry in config.sqs.databases):
        raise typer.BadParameter("--node needs databases that all nodes share; one of sqs.databases is a file")
    if advertise is None and not is_loopback(host):
        raise typer.BadParameter("--node needs --advertise URL, the address at which the other nodes reach this one")
    ttl_s = config.cluster.ttl_s

    def stores(shard: str) -> "dict[str, Store]":
        own = store_of(config, "sqs", database=url, lease_s=ttl_s, shard=shard)
        return {OWN_DATABASE: own, **named_stores(config, ttl_s, shard)}

    shards = config.cluster.shards
    return stores, SqsNodeSettings(name=name, database=url, advertise=advertise, ttl_s=ttl_s, shards=shards)
