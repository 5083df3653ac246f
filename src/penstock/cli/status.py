"""`penstock status`: what runs, how it is, and what to do."""

from typing import TYPE_CHECKING

import typer

from penstock.cli.events.connection import connect
from penstock.cli.failures import FAILURE
from penstock.cli.family import examples
from penstock.cli.options import options_of
from penstock.cli.output import print_json, print_table, printable
from penstock.cli.parameters import ApiEndpoint, AsJson

if TYPE_CHECKING:
    from penstock.client.types import ClusterView, SubscriptionHealth

EXAMPLES = examples("penstock status", "penstock status --json", "penstock status --endpoint http://10.0.0.7:8080")

_SHOWN = 20


def status(ctx: typer.Context, endpoint: ApiEndpoint = None, as_json: AsJson = False) -> None:
    """Show how a running Penstock is: parts, health with what to do, backlog and the worst subscriptions.

    The exit code is 1 if the health is DEGRADED: events are not delivered as they should be.
    """
    from penstock.client.types import HealthStatus
    from penstock.ops.config import load

    with connect(ctx, endpoint) as client:
        report = client.health()
    if as_json:
        print_json(report)
    else:
        api = endpoint or load(options_of(ctx).config_file).api.endpoint
        rows = [("api", api, HealthStatus.HEALTHY), *((each.name, each.url, each.status) for each in report.parts)]
        print_table(("part", "address", "health"), rows)
        typer.echo(f"\n{report.status}{': no problems' if not report.reasons else ', because'}")
        for reason in report.reasons:
            typer.echo(f"  {reason.status}: {printable(reason.message)}\n      {printable(reason.remedy)}")
        lag = "" if report.pipeline_lag is None else f"; {report.pipeline_lag} rows wait for Spark"
        more = "at least " if any(each.backlog >= each.backlog_limit for each in report.subscriptions) else ""
        due = "none is due" if report.oldest_due_s is None else f"the oldest is due for {_span(report.oldest_due_s)}"
        jobs = "1 job waits" if report.backlog == 1 and not more else f"{report.backlog} jobs wait"
        typer.echo(f"\n{more}{jobs}, {due}{lag}\n")
        if report.cluster is not None:
            _print_cluster(report.cluster)
        _print_subscriptions(report.subscriptions, report.more_subscriptions)
    if report.status is HealthStatus.DEGRADED:
        raise typer.Exit(FAILURE)


def _print_cluster(cluster: "ClusterView") -> None:
    rows = [
        (
            node.name,
            node.address,
            "STOPPING" if node.draining else "LIVE",
            f"{node.expires_in_s:.0f} s",
            ", ".join(f"{each.part} (epoch {each.epoch})" for each in cluster.shards if each.owner == node.name) or "–",
        )
        for node in cluster.nodes
    ]
    print_table(("node", "address", "state", "expires in", "owns"), rows)
    for shard in cluster.shards:
        if shard.owner is None:
            typer.echo(f"{shard.part}: no node serves {shard.name} now")
    typer.echo(f"owners have changed {sum(shard.moves for shard in cluster.shards)} times\n")


def _print_subscriptions(found: list["SubscriptionHealth"], more: int) -> None:
    rows = [
        (
            each.name,
            "PAUSED" if each.paused else each.status,
            f"{round(each.per_minute, 1):g}",
            "–" if not each.delivered + each.failed else f"{each.delivered / (each.delivered + each.failed):.0%}",
            "–" if each.p99_ms is None else f"{each.p99_ms:.0f} ms",
            f"{each.backlog}{'+' if each.backlog >= each.backlog_limit else ''}",
            _span(each.oldest_due_s),
            str(each.blocked_groups),
            each.breaker,
        )
        for each in found[:_SHOWN]
    ]
    columns = ("subscription", "health", "per minute", "success", "p99", "backlog", "oldest due", "blocked", "breaker")
    print_table(columns, rows)
    if left := max(0, len(found) - _SHOWN) + more:
        typer.echo(f"and {left} that are no worse")


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
