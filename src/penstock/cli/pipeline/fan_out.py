"""`penstock pipeline fan-out`: the jobs of published events."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import load_config
from penstock.cli.pipeline.options import (
    Conf,
    Data,
    DatabaseUrl,
    Master,
    checkpoint_of,
    database_of,
    session_settings,
)

if TYPE_CHECKING:
    from penstock.events.fan_out.spark import FannedOut

EXAMPLES = examples(
    "penstock pipeline fan-out --data ./penstock-data",
    "penstock pipeline fan-out --once --database postgresql://penstock@db/penstock --master spark://spark:7077",
)


def fan_out(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="End when no event waits any more.")] = False,
    master: Master = "",
    conf: Conf = None,
    database: DatabaseUrl = None,
    data: Data = None,
) -> None:
    """Make the jobs of events that were published with the setting jobs.fan_out = "pipeline".

    Each event gets one job for every subscription that wants it at that moment. It may be stopped at any time and
    started again: no event is passed over, and none gets a job twice.
    """
    import asyncio

    from penstock.events.fan_out.spark import FanOutJob, FanOutSettings
    from penstock.spark.run import RunSettings, run_pipeline

    config = load_config(ctx)
    options = config.pipeline
    settings = FanOutSettings(most_rows=options.max_rows_per_batch, trigger_ms=options.trigger_ms, once=once)
    job = FanOutJob(database_of(config, data, database), settings, _tell)
    run = RunSettings(
        session=session_settings(config, master, conf, app_name="penstock-fan-out"),
        checkpoint=checkpoint_of(config, data),
        once=once,
        # A free one: several jobs may run beside each other, each in a process of its own.
        port=0,
        stop_s=options.stop_s,
    )
    asyncio.run(run_pipeline([job], run))


def _tell(done: "FannedOut") -> None:
    if done.events:
        damaged = f", {done.set_aside} damaged events set aside" if done.set_aside else ""
        typer.echo(f"batch {done.batch_id}: {done.events} events, {done.jobs} jobs{damaged}")
