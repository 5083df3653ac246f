"""`penstock listen`: a receiver for trying things out."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failures import FAILURE
from penstock.cli.family import examples
from penstock.cli.output import printable, time_text
from penstock.cli.parameters import AsJson

if TYPE_CHECKING:
    from penstock.tools.listen import HeardCounts, HeardDelivery

EXAMPLES = examples(
    "penstock listen 9000",
    "WEBHOOK_SECRET=whsec_… penstock listen 9000",
    "penstock listen 9000 --answer 503",
    "penstock listen 9000 --count 2 --json",
)


def listen(
    port: Annotated[int, typer.Argument(min=0, max=65535, metavar="PORT", help="Port to listen on; 0 is a free one.")],
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECRET",
            envvar="WEBHOOK_SECRET",
            show_envvar=True,
            help="Secret of a subscription; repeatable. What none of them signed is answered 401.",
        ),
    ] = None,
    answer: Annotated[int, typer.Option(min=200, max=599, metavar="STATUS", help="Status to answer with.")] = 200,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after N deliveries; else Ctrl-C stops.")
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Receive webhooks: print each, verify its signature, and check the order of each key.

    The exit code is 1 if a delivery was out of order or had a wrong signature. With --json every delivery is one line.
    """
    from penstock.domain.signing import key_of
    from penstock.http.server import run
    from penstock.tools.listen import Listener
    from penstock.tools.listen import listen as receive

    secrets = secret or []
    for each in secrets:
        key_of(each)
    if not secrets:
        typer.echo("signatures are not checked: give --secret, or set WEBHOOK_SECRET", err=True)
    listener = Listener(secrets, answer, _print_json if as_json else _print, count)
    run(receive(listener, host, port))
    typer.echo(_summary(listener.tally), err=True)
    if not listener.tally.ok:
        raise typer.Exit(FAILURE)


def _print(delivery: "HeardDelivery") -> None:
    import msgspec

    data = "" if delivery.data is None else msgspec.json.encode(delivery.data).decode()
    parts = (
        time_text(int(delivery.received_s * 1000)),
        delivery.type or "(no event)",
        delivery.key or "–",
        data,
        f"[attempt {delivery.attempt}, signature {delivery.signature}, {delivery.order}, answered {delivery.answer}]",
    )
    typer.echo(printable("  ".join(parts)))


def _print_json(delivery: "HeardDelivery") -> None:
    import msgspec

    typer.echo(msgspec.json.encode(delivery).decode())


def _summary(tally: "HeardCounts") -> str:
    return (
        f"{tally.received} deliveries: {tally.repeated} repeated, {tally.out_of_order} out of order, "
        f"{tally.badly_signed} with a wrong signature"
    )
