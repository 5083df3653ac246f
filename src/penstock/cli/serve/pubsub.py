"""`penstock serve pubsub`: the Google Pub/Sub front alone."""

from typing import Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import database_url, given_or, load_config
from penstock.cli.parameters import DatabaseUrl, DataDir, Memory, NodeName, host_option, port_option

EXAMPLES = examples(
    "penstock serve pubsub --memory",
    "penstock serve pubsub --port 8085 --data /var/lib/penstock",
    "penstock serve pubsub --database postgresql://penstock@db/penstock",
    "penstock serve pubsub --database postgresql://penstock@db/penstock --node a --advertise 10.0.0.1:8087",
)


def pubsub(
    ctx: typer.Context,
    port: Annotated[int | None, port_option("the gRPC API", "ports.pubsub", 8085)] = None,
    probe_port: Annotated[
        int | None, port_option("/health/live, /health/ready and /metrics", "ports.pubsub_probes", 8086)
    ] = None,
    host: Annotated[str, host_option("--allow-remote")] = "127.0.0.1",
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Let other machines in; the API asks for no credentials.")
    ] = False,
    data: DataDir = None,
    database: DatabaseUrl = None,
    memory: Memory = False,
    node: NodeName = None,
    node_port: Annotated[int | None, port_option("calls that other nodes pass on", "ports.pubsub_nodes", 8087)] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            help="Address at which the other nodes reach this one.", metavar="HOST:PORT", show_default="on this machine"
        ),
    ] = None,
) -> None:
    """Serve the Google Pub/Sub API: Google's clients work by setting PUBSUB_EMULATOR_HOST to the address it prints.

    Without --data, --database or --memory, the data directory of the configuration is used.
    """
    from penstock.cli.serve.stores import store_of
    from penstock.edge.clock import SystemClock
    from penstock.edge.node import process_ids
    from penstock.engine import Window
    from penstock.http.server import run
    from penstock.pubsub import PubsubServerSettings, serve_pubsub

    config = load_config(ctx)
    settings = PubsubServerSettings(
        host=host,
        port=given_or(port, config.ports.pubsub),
        probe_port=given_or(probe_port, config.ports.pubsub_probes),
        allow_remote=allow_remote,
        egress_allow=config.egress.allow,
        egress_deny_ports=config.egress.deny_ports,
        window=Window(
            messages=config.queue.window_messages,
            size_bytes=config.queue.window_bytes,
            lookahead=config.queue.lookahead_messages,
        ),
    )
    clock, ids = SystemClock(), process_ids(config.node.id)
    name = given_or(node, config.cluster.node)
    if name:
        from penstock.pubsub.nodes import PubsubNodeSettings, serve_pubsub_node

        url = "" if memory else database_url(config, data, database)
        if not url:
            raise typer.BadParameter("--node needs a database that all nodes share: --database postgresql://…")
        port = given_or(node_port, config.ports.pubsub_nodes)
        ttl_s = config.cluster.ttl_s
        member = PubsubNodeSettings(name=name, database=url, port=port, advertise=advertise, ttl_s=ttl_s)
        run(
            serve_pubsub_node(
                lambda: store_of(config, "pubsub", database=url, lease_s=ttl_s), member, clock, ids, settings
            )
        )
        return
    if advertise is not None:
        raise typer.BadParameter("--advertise needs --node NAME")
    run(serve_pubsub(store_of(config, "pubsub", data=data, database=database, memory=memory), clock, ids, settings))
