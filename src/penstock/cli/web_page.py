"""Where the web page finds the parts it shows; shared by the commands that serve it."""

import os
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from penstock.console.front import WebFront
    from penstock.console.upstream import Sign
    from penstock.ops.config import Config

RouterAddress: TypeAlias = Annotated[
    str, typer.Option("--router", help="Router that the web page shows; else api.router.", metavar="URL")
]
QueuesAddress: TypeAlias = Annotated[
    str, typer.Option("--queues", help="SQS server that the web page shows; else api.queues.", metavar="URL")
]
PipelineAddress: TypeAlias = Annotated[
    str, typer.Option("--pipeline", help="Pipeline that the web page shows; else api.pipeline.", metavar="URL")
]


def web_front(config: "Config", router: str, queues: str, pipeline: str) -> "WebFront":
    """The web page, with the addresses given or configured."""
    from penstock.console.front import WebFront

    queues = queues or config.api.queues
    return WebFront.at(
        router=router or config.api.router,
        queues=queues,
        pipeline=pipeline or config.api.pipeline,
        router_token=config.router.api_token or config.api.token,
        sign=_sign(queues),
    )


def _sign(queues: str) -> "Sign | None":
    from penstock.cli.queue_connection import find_signer
    from penstock.edge.clock import SystemClock

    signer = find_signer(queues, os.environ)
    clock = SystemClock()
    return None if signer is None else lambda request: signer.signed(request, clock.now_ms())
