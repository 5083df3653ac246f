"""`penstock queue send`."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples, family
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import AsJson, pairs
from penstock.cli.queue.connection import QueueName, SqsEndpoint, connect, count_of, name_of
from penstock.domain.errors import FailedPrecondition, InvalidArgument, PenstockError

if TYPE_CHECKING:
    from penstock.sqs import MessageAttributes, SendMessageBatchRequestEntry
    from penstock.sqs.client import BlockingSqsClient

_BATCH = 10
# What the oldest SQS servers take in one request; a longer line goes alone.
_BATCH_BYTES = 256 * 1024

app = family("Send messages.")


@app.command(
    epilog=examples(
        "penstock queue send orders 'hello' --delay 30 --attribute kind=greeting --attribute size:Number=5",
        "penstock queue send orders.fifo - --group customer-7 --dedup-id order-1 < order.json",
        "penstock queue send orders --lines < orders.jsonl",
    )
)
def send(
    ctx: typer.Context,
    name: QueueName,
    body: Annotated[str, typer.Argument(metavar="[BODY|-]", help="The body; - or none reads standard input.")] = "-",
    group: Annotated[str | None, typer.Option(metavar="G", help="Message group; FIFO queues need one.")] = None,
    dedup_id: Annotated[
        str | None, typer.Option(metavar="D", help="Deduplication id; with --lines, -1, -2, … is added to it.")
    ] = None,
    delay: Annotated[
        int | None, typer.Option(min=0, metavar="S", help="Seconds until the message can be received.")
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Message attribute; NAME:Number=5 gives its type; repeatable."),
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Send each non-empty line of standard input.")] = False,
    endpoint: SqsEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Send a message, or one for each line of a file.

    A line break at the end of standard input is not part of the body. Lines are sent in order, in batches of 10, until
    one is refused.
    """
    from penstock.sqs import SendMessageRequest, SendMessageResponse

    typed = _message_attributes(attribute)
    if lines and body != "-":
        raise typer.BadParameter("--lines reads standard input; leave the body out", param_hint="BODY")
    with connect(ctx, endpoint) as client:
        url = client.queue_url(name)
        if lines:
            entries = _entries(_input_lines(), delay, typed, dedup_id, group)
            sent = _send_all(client, url, entries)
            print_json({"sent": sent}) if as_json else typer.echo(f"sent {count_of(sent)} to {name_of(name)}")
            return
        text = _input_text() if body == "-" else body
        request = SendMessageRequest(url, text, delay, typed, {}, dedup_id, group)
        answer = client.call("SendMessage", request, SendMessageResponse)
    if as_json:
        print_json({"message_id": answer.message_id, "sequence_number": answer.sequence_number})
    else:
        print_table(("message id", "sequence number"), [(answer.message_id, answer.sequence_number or "-")])


def _message_attributes(texts: list[str] | None) -> "MessageAttributes":
    from penstock.sqs import MessageAttributeValue

    found: MessageAttributes = {}
    for key, value in pairs(texts, "--attribute").items():
        name, _, data_type = key.partition(":")
        found[name] = MessageAttributeValue(data_type or "String", value)
    return found


def _input_text() -> str:
    if sys.stdin.isatty():
        typer.echo("reading the body from the terminal; end it with Ctrl-D", err=True)
    return _decoded(typer.get_binary_stream("stdin").read()).removesuffix("\n")


def _input_lines() -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, with their numbers."""
    for number, line in enumerate(typer.get_binary_stream("stdin"), start=1):
        if text := _decoded(line).removesuffix("\n").removesuffix("\r"):
            yield number, text


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"standard input is not UTF-8 text: {error.reason}; encode it first") from error


def _entries(
    lines: Iterable[tuple[int, str]],
    delay: int | None,
    attributes: "MessageAttributes",
    dedup_id: str | None,
    group: str | None,
) -> Iterator["SendMessageBatchRequestEntry"]:
    """Yield one entry for each line, with the line's number as its id."""
    from penstock.sqs import SendMessageBatchRequestEntry

    for number, text in lines:
        own_dedup_id = None if dedup_id is None else f"{dedup_id}-{number}"
        yield SendMessageBatchRequestEntry(str(number), text, delay, attributes, {}, own_dedup_id, group)


def _send_all(client: "BlockingSqsClient", url: str, entries: Iterable["SendMessageBatchRequestEntry"]) -> int:
    from penstock.sqs import SendMessageBatchRequest, SendMessageBatchResponse

    sent = 0
    try:
        for batch in _batches(entries):
            answer = client.call("SendMessageBatch", SendMessageBatchRequest(url, batch), SendMessageBatchResponse)
            sent += len(answer.successful)
            if answer.failed:
                lines = ", ".join(failure.id for failure in answer.failed)
                raise FailedPrecondition(
                    f"{answer.failed[0].code}: {answer.failed[0].message} (refused lines: {lines})"
                )
    except PenstockError:
        typer.echo(f"sent {count_of(sent)} before this:", err=True)
        raise
    return sent


def _batches(
    entries: Iterable["SendMessageBatchRequestEntry"],
) -> Iterator[list["SendMessageBatchRequestEntry"]]:
    batch: list[SendMessageBatchRequestEntry] = []
    size_bytes = 0
    for entry in entries:
        entry_bytes = len(entry.message_body.encode())
        if batch and (len(batch) == _BATCH or size_bytes + entry_bytes > _BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(entry)
        size_bytes += entry_bytes
    if batch:
        yield batch
