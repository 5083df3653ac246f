"""`penstock queue redrive`: move dead letters back to the queues they came from."""

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples, family
from penstock.cli.output import print_json
from penstock.cli.parameters import AsJson
from penstock.cli.queue.connection import QueueName, SqsEndpoint, connect, name_of
from penstock.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from penstock.sqs import MessageMoveTask
    from penstock.sqs.client import BlockingSqsClient

_POLL_S = 0.5
_UNDER_WAY = ("RUNNING", "CANCELLING")
_CLEAR_LINE = "\r\x1b[K"

app = family("Move dead letters.")


@app.command(
    epilog=examples(
        "penstock queue redrive orders-dead --watch",
        "penstock queue redrive orders-dead --to orders-again --per-second 50",
    )
)
def redrive(
    ctx: typer.Context,
    name: QueueName,
    to: Annotated[str | None, typer.Option(metavar="NAME", help="Move to this queue instead.")] = None,
    per_second: Annotated[int | None, typer.Option(min=1, metavar="N", help="Messages per second at most.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show progress until all messages are moved.")] = False,
    endpoint: SqsEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Move the messages of a dead-letter queue back to the queues they came from.

    The server moves them; with --watch the exit code is 1 if it could not move them all.
    """
    from penstock.sqs import StartMessageMoveTaskRequest, TaskHandleResponse

    with connect(ctx, endpoint) as client:
        source = _arn(client, name)
        request = StartMessageMoveTaskRequest(source, None if to is None else _arn(client, to), per_second)
        handle = client.call("StartMessageMoveTask", request, TaskHandleResponse).task_handle
        if watch:
            _print_end(name_of(name), _watched(client, source, name_of(name), quiet=as_json), as_json=as_json)
        elif as_json:
            print_json({"task": handle})
        else:
            typer.echo(f"the server moves the messages of {name_of(name)}; the task is {handle}")


def _arn(client: "BlockingSqsClient", name: str) -> str:
    return client.attributes(client.queue_url(name), "QueueArn")["QueueArn"]


def _watched(client: "BlockingSqsClient", source: str, name: str, *, quiet: bool) -> "MessageMoveTask":
    """Show the progress of a task until it ends; return the task."""
    on_terminal = sys.stderr.isatty()
    shown = ""
    try:
        for task in _progress(client, source):
            line = f"moved {task.approximate_number_of_messages_moved or 0} of {_to_move(task)}"
            if line != shown and not quiet:
                typer.echo(f"{_CLEAR_LINE}{line}" if on_terminal else line, err=True, nl=not on_terminal)
            shown = line
    except KeyboardInterrupt:
        typer.echo(f"{_CLEAR_LINE if on_terminal else ''}the server continues to move the messages of {name}", err=True)
        raise
    if on_terminal and not quiet:
        typer.echo(_CLEAR_LINE, err=True, nl=False)
    return task


def _progress(client: "BlockingSqsClient", source: str) -> Iterator["MessageMoveTask"]:
    from penstock.sqs import ListMessageMoveTasksRequest, ListMessageMoveTasksResponse

    while True:
        listed = client.call(
            "ListMessageMoveTasks", ListMessageMoveTasksRequest(source, 1), ListMessageMoveTasksResponse
        )
        if not listed.results:
            raise FailedPrecondition("the server lists no task for this queue any more; was it restarted?")
        yield listed.results[0]
        if listed.results[0].status not in _UNDER_WAY:
            return
        time.sleep(_POLL_S)


def _print_end(name: str, task: "MessageMoveTask", *, as_json: bool) -> None:
    moved, to_move = task.approximate_number_of_messages_moved or 0, _to_move(task)
    if as_json:
        print_json({"status": task.status, "moved": moved, "to_move": task.approximate_number_of_messages_to_move})
    if task.status != "COMPLETED":
        reason = f": {task.failure_reason}" if task.failure_reason else ""
        raise FailedPrecondition(
            f"the move of {name} is {task.status.lower()} after {moved} of {to_move} messages{reason}"
        )
    if not as_json:
        typer.echo(f"moved {moved} of {to_move} messages of {name}")


def _to_move(task: "MessageMoveTask") -> str:
    count = task.approximate_number_of_messages_to_move
    return "?" if count is None else str(count)
