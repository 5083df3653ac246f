"""`penstock queue receive` and `peek`."""

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples, family
from penstock.cli.output import print_json, print_table, printable, time_text
from penstock.cli.parameters import AsJson, Cursor
from penstock.cli.queue.connection import QueueName, SqsEndpoint, connect, name_of
from penstock.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from penstock.sqs import ReceivedMessage
    from penstock.sqs.client import BlockingSqsClient

_BATCH = 10

app = family("Receive messages, or look at them.")


@app.command(
    epilog=examples(
        "penstock queue receive orders",
        "penstock queue receive orders --max 100 --wait 20 --delete --json",
        "penstock queue receive orders --visibility 0",
    )
)
def receive(
    ctx: typer.Context,
    name: QueueName,
    max_messages: Annotated[int, typer.Option("--max", min=1, metavar="N", help="How many at most.")] = 1,
    wait: Annotated[
        int | None,
        typer.Option(min=0, max=20, metavar="S", help="Seconds to wait for the first message.", show_default=False),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete messages once they are printed.")] = False,
    visibility: Annotated[
        int | None,
        typer.Option(min=0, metavar="S", help="Seconds until the messages are visible again.", show_default=False),
    ] = None,
    endpoint: SqsEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Receive messages; other receivers do not see them until the visibility timeout expires.

    Options that are not given come from the queue's attributes. Messages come in batches of 10. With --delete each
    batch is deleted when it is printed: a FIFO queue gives no more messages of a group while some are in flight.
    """
    with connect(ctx, endpoint) as client:
        url = client.queue_url(name)
        shown = 0
        try:
            for batch in _received(client, url, max_messages, wait, visibility):
                _show(batch, shown, as_json=as_json)
                shown += len(batch)
                # The reader must have them before they are deleted.
                sys.stdout.flush()
                if delete:
                    _delete(client, url, batch)
        finally:
            if as_json and shown:
                typer.echo("\n]")
    if not shown:
        typer.echo("[]" if as_json else f"no message of {name_of(name)} is visible")


@app.command(
    epilog=examples("penstock queue peek orders", "penstock queue peek orders --limit 100 --cursor 0.100 --json")
)
def peek(
    ctx: typer.Context,
    name: QueueName,
    limit: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="How many at most.")] = 10,
    cursor: Cursor = None,
    endpoint: SqsEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Look at messages without receiving them; for admins of a Penstock server."""
    from msgspec import to_builtins

    with connect(ctx, endpoint) as client:
        page = client.peek(name_of(name), limit, cursor)
    if as_json:
        print_json(to_builtins(page))
        return
    rows = [
        (
            message.message_id,
            f"{message.partition}.{message.sequence}",
            printable(message.group or "-"),
            message.state,
            str(message.receive_count),
            time_text(message.sent_ms),
            printable(message.body),
        )
        for message in page.messages
    ]
    print_table(("message id", "position", "group", "state", "receives", "sent", "body"), rows)
    if page.cursor is not None:
        typer.echo(f"for more: --cursor {page.cursor}")


def _received(
    client: "BlockingSqsClient", url: str, max_messages: int, wait: int | None, visibility: int | None
) -> Iterator[list["ReceivedMessage"]]:
    """Yield batches until there are enough or none is left; only the first request waits."""
    from penstock.sqs import ReceiveMessageRequest, ReceiveMessageResponse

    left = max_messages
    while left > 0:
        request = ReceiveMessageRequest(url, ["All"], [], ["All"], min(left, _BATCH), visibility, wait)
        answer = client.call("ReceiveMessage", request, ReceiveMessageResponse)
        if not answer.messages:
            return
        yield answer.messages
        left -= len(answer.messages)
        wait = 0
        if visibility == 0:
            # Another request would give the same messages again.
            return


def _delete(client: "BlockingSqsClient", url: str, batch: list["ReceivedMessage"]) -> None:
    from penstock.sqs import BatchResponse, DeleteMessageBatchRequest, DeleteMessageBatchRequestEntry

    entries = [DeleteMessageBatchRequestEntry(str(at), each.receipt_handle) for at, each in enumerate(batch)]
    answer = client.call("DeleteMessageBatch", DeleteMessageBatchRequest(url, entries), BatchResponse)
    if answer.failed:
        first = answer.failed[0]
        ids = ", ".join(batch[int(failure.id)].message_id for failure in answer.failed)
        raise FailedPrecondition(f"{first.code}: {first.message} (not deleted: {ids})")


def _show(batch: list["ReceivedMessage"], shown_before: int, *, as_json: bool) -> None:
    """Print a batch: a table, or the next messages of a JSON array, one to a line."""
    if not as_json:
        print_table(("message id", "group", "receives", "sent", "body"), [_row(message) for message in batch])
        return
    typer.echo(",\n" if shown_before else "[\n", nl=False)
    typer.echo(",\n".join(json.dumps(_as_tree(message), ensure_ascii=False) for message in batch), nl=False)


def _as_tree(message: "ReceivedMessage") -> dict[str, object]:
    from msgspec import to_builtins

    system = message.attributes
    return {
        "message_id": message.message_id,
        "group": system.get("MessageGroupId"),
        "sent_ms": int(system["SentTimestamp"]) if "SentTimestamp" in system else None,
        "receive_count": int(system.get("ApproximateReceiveCount", "1")),
        "body": message.body,
        "attributes": {name: to_builtins(value) for name, value in message.message_attributes.items()},
        "system_attributes": system,
        "receipt_handle": message.receipt_handle,
    }


def _row(message: "ReceivedMessage") -> tuple[str, ...]:
    system = message.attributes
    return (
        message.message_id,
        printable(system.get("MessageGroupId", "-")),
        system.get("ApproximateReceiveCount", "-"),
        time_text(int(system["SentTimestamp"])) if "SentTimestamp" in system else "-",
        printable(message.body),
    )
