"""`penstock serve`: one part of Penstock alone."""

from penstock.cli.family import family
from penstock.cli.serve import api, pubsub, router, scheduler, sqs
from penstock.cli.serve.tls import with_tls

app = family(
    "Run one part of Penstock alone.",
    "penstock serve sqs --memory",
    "penstock serve sqs --port 9324 --data ./penstock-data",
    "penstock serve router --config router.json",
)


@app.callback()
def serve() -> None:
    """Run one part of Penstock alone."""


app.command(epilog=sqs.EXAMPLES)(with_tls(sqs.sqs))
app.command(epilog=pubsub.EXAMPLES)(with_tls(pubsub.pubsub))
app.command(epilog=router.EXAMPLES)(with_tls(router.router))
app.command(epilog=scheduler.EXAMPLES)(with_tls(scheduler.scheduler))
app.command(epilog=api.API_EXAMPLES)(with_tls(api.api))
app.command(epilog=api.DISPATCH_EXAMPLES)(with_tls(api.dispatch))
