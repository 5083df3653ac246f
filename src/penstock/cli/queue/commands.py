"""`penstock queue`: a command line for any SQS endpoint; the commands for messages are in `queue_*.py`."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples, family
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import AsJson, Yes, pairs
from penstock.cli.queue import messages, redrive
from penstock.cli.queue import send as queue_send
from penstock.cli.queue.connection import FamilyOptions, QueueName, SqsEndpoint, connect, count_of, name_of
from penstock.domain.errors import FailedPrecondition, NotFound

if TYPE_CHECKING:
    from penstock.sqs.client import BlockingSqsClient

_COUNTERS = {
    "visible": "ApproximateNumberOfMessages",
    "in flight": "ApproximateNumberOfMessagesNotVisible",
    "delayed": "ApproximateNumberOfMessagesDelayed",
}
_LIMITS = {"send": "ThrottleSend", "receive": "ThrottleRecv", "default": "ThrottleDefault"}
_CAPACITY, _REFILL = "Capacity", "RefillPerSecond"
_LIMIT_HELP = "Burst of messages, and messages per second after it; 0/0 for no limit."

_HELP = """Work with the queues of any SQS endpoint.

Requests are signed with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or with the profile AWS_PROFILE or default of
~/.aws/credentials; without any of these they are not signed. The region is AWS_REGION or AWS_DEFAULT_REGION.
"""

app = family(
    _HELP,
    "penstock queue create orders.fifo --attribute ContentBasedDeduplication=true",
    "penstock queue send orders 'hello'",
    "penstock queue receive orders --wait 20 --delete",
    "penstock queue --endpoint https://sqs.eu-central-1.amazonaws.com list",
)


@app.callback()
def queue(ctx: typer.Context, endpoint: SqsEndpoint = None) -> None:
    """Keep the options of the family."""
    ctx.obj = FamilyOptions(endpoint)


@app.command(
    epilog=examples(
        "penstock queue create orders --attribute VisibilityTimeout=60 --tag team=shop",
        "penstock queue create orders.fifo --attribute ContentBasedDeduplication=true",
        "penstock queue create orders --fifo --partitions 4",
    )
)
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name; if it ends with .fifo, the queue is FIFO.")],
    fifo: Annotated[bool, typer.Option("--fifo", help="Create a FIFO queue; .fifo is added to the name.")] = False,
    attribute: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A queue attribute; repeatable.")] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Partitions of a FIFO queue, a power of two; Penstock only.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A tag; repeatable.")] = None,
    endpoint: SqsEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Create a queue; creating the same one again does nothing."""
    from penstock.sqs import FIFO_SUFFIX, CreateQueueRequest, QueueUrlResponse

    attributes = pairs(attribute, "--attribute")
    if fifo and not name.endswith(FIFO_SUFFIX):
        name += FIFO_SUFFIX
    if name.endswith(FIFO_SUFFIX):
        attributes = {"FifoQueue": "true"} | attributes
    if partitions is not None:
        attributes["PartitionCount"] = str(partitions)
    request = CreateQueueRequest(name, attributes, pairs(tag, "--tag"))
    with connect(ctx, endpoint) as client:
        url = client.call("CreateQueue", request, QueueUrlResponse).queue_url
    if as_json:
        print_json({"name": name, "kind": _kind(name), "url": url})
    else:
        print_table(("name", "kind", "url"), [(name, _kind(name), url)])


@app.command("list", epilog=examples("penstock queue list", "penstock queue list orders- --json"))
def list_queues(
    ctx: typer.Context,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="List only names that start with this.")] = "",
    endpoint: SqsEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """List queues and how many messages they hold."""
    found: list[dict[str, str | int]] = []
    with connect(ctx, endpoint) as client:
        for url in client.queue_urls(prefix):
            counters = _counters_if_there(client, url)
            if counters is not None:
                found.append({"name": name_of(url), "kind": _kind(url), **counters})
    columns = ("name", "kind", *_COUNTERS)
    if as_json:
        print_json([{key.replace(" ", "_"): value for key, value in each.items()} for each in found])
    else:
        print_table(columns, [[str(each[column]) for column in columns] for each in found])


@app.command(
    epilog=examples(
        "penstock queue attrs orders",
        "penstock queue attrs orders --set VisibilityTimeout=60 --set DelaySeconds=5",
        """penstock queue attrs orders --set 'RedrivePolicy={"deadLetterTargetArn": "arn:…", "maxReceiveCount": 5}'""",
    )
)
def attrs(
    ctx: typer.Context,
    name: QueueName,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="K=V", help="An attribute to change; repeatable.")
    ] = None,
    endpoint: SqsEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Show the attributes of a queue, after changing those given with --set."""
    from penstock.sqs import EmptyResponse, SetQueueAttributesRequest

    changed = pairs(changes, "--set")
    with connect(ctx, endpoint) as client:
        url = client.queue_url(name)
        if changed:
            client.call("SetQueueAttributes", SetQueueAttributesRequest(url, changed), EmptyResponse)
        attributes = client.attributes(url)
    if as_json:
        print_json(attributes)
    else:
        print_table(("attribute", "value"), sorted(attributes.items()))


app.add_typer(queue_send.app)
app.add_typer(messages.app)


@app.command(epilog=examples("penstock queue purge orders", "penstock queue purge orders --yes"))
def purge(
    ctx: typer.Context, name: QueueName, yes: Yes = False, endpoint: SqsEndpoint = None, as_json: AsJson = False
) -> None:
    """Drop all messages of a queue, after asking; --json does not ask."""
    _remove(ctx, endpoint, name, "purge", ask=not (yes or as_json), as_json=as_json)


@app.command(epilog=examples("penstock queue delete orders", "penstock queue delete orders --yes"))
def delete(
    ctx: typer.Context, name: QueueName, yes: Yes = False, endpoint: SqsEndpoint = None, as_json: AsJson = False
) -> None:
    """Delete a queue with its messages, after asking; --json does not ask."""
    _remove(ctx, endpoint, name, "delete", ask=not (yes or as_json), as_json=as_json)


app.add_typer(redrive.app)


@app.command(
    epilog=examples(
        "penstock queue throttle orders",
        "penstock queue throttle orders --send 100/50 --receive 200/100",
        "penstock queue throttle orders --off",
    )
)
def throttle(
    ctx: typer.Context,
    name: QueueName,
    send: Annotated[str | None, typer.Option(metavar="CAP/REFILL", help=_LIMIT_HELP)] = None,
    receive: Annotated[str | None, typer.Option(metavar="CAP/REFILL", help="The same for receives.")] = None,
    default: Annotated[
        str | None, typer.Option(metavar="CAP/REFILL", help="The limit of operations that have none of their own.")
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Remove all limits except those that are given.")] = False,
    endpoint: SqsEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Show a queue's limits, after changing those given; for admins of a Penstock server."""
    from penstock.sqs import EmptyResponse, SetQueueAttributesRequest

    given = {"send": send, "receive": receive, "default": default}
    texts = {verb: text or "0/0" for verb, text in given.items() if text is not None or off}
    changes = {name: value for verb, text in texts.items() for name, value in _limit(verb, text).items()}
    asked = [prefix + part for prefix in _LIMITS.values() for part in (_CAPACITY, _REFILL)]
    with connect(ctx, endpoint) as client:
        url = client.queue_url(name)
        if changes:
            client.call("SetQueueAttributes", SetQueueAttributesRequest(url, changes), EmptyResponse)
        limits = client.attributes(url, *asked)
    if not limits:
        raise FailedPrecondition(
            f"the server does not show the limits of {name_of(name)}: only its admins may see them"
        )
    shown = {verb: (limits[prefix + _CAPACITY], limits[prefix + _REFILL]) for verb, prefix in _LIMITS.items()}
    if as_json:
        keys = ("capacity", "refill_per_second")
        print_json({verb: dict(zip(keys, map(json.loads, limit), strict=True)) for verb, limit in shown.items()})
    else:
        rows = [(verb, *("none" if text == "0" else text for text in limit)) for verb, limit in shown.items()]
        print_table(("limit", "capacity", "refill per second"), rows)


def _remove(ctx: typer.Context, endpoint: str | None, name: str, verb: str, *, ask: bool, as_json: bool) -> None:
    from penstock.sqs import EmptyResponse, QueueUrlRequest

    with connect(ctx, endpoint) as client:
        url = client.queue_url(name)
        counters = _counters(client, url)
        total = sum(counters.values())
        if ask:
            parts = ", ".join(f"{count} {kind}" for kind, count in counters.items())
            typer.confirm(f"{verb} {name_of(name)} and drop {count_of(total)} ({parts})?", abort=True, err=True)
        client.call(f"{verb.capitalize()}Queue", QueueUrlRequest(url), EmptyResponse)
    if as_json:
        print_json({f"{verb}d": name_of(name), "messages": total})
    else:
        typer.echo(f"{verb}d {name_of(name)} with {count_of(total)}")


def _counters_if_there(client: "BlockingSqsClient", url: str) -> dict[str, int] | None:
    """Return the counters of a listed queue; None if it was deleted meanwhile."""
    try:
        return _counters(client, url)
    except NotFound:
        return None


def _counters(client: "BlockingSqsClient", url: str) -> dict[str, int]:
    found = client.attributes(url, *_COUNTERS.values())
    return {kind: int(found.get(attribute, "0")) for kind, attribute in _COUNTERS.items()}


def _kind(name: str) -> str:
    return "fifo" if name.endswith(".fifo") else "standard"


def _limit(verb: str, text: str) -> dict[str, str]:
    capacity, _, refill = text.partition("/")
    if not capacity or not refill:
        raise typer.BadParameter(f"{text!r} is not of the form CAP/REFILL, such as 100/50", param_hint=f"--{verb}")
    return {_LIMITS[verb] + _CAPACITY: capacity, _LIMITS[verb] + _REFILL: refill}
