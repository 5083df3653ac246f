"""`penstock pipeline`: the Spark jobs.

A job's command is `cli/pipeline_JOB.py` with one function named after the job and its EXAMPLES, and one line below.
"""

from typing import Any

from typer.core import TyperCommand

from penstock.cli.family import family
from penstock.cli.pipeline import (
    audit,
    dispatch,
    facts,
    fan_out,
    golden_day,
    package,
    repartition,
    replay,
    report,
    run,
)
from penstock.cli.pipeline import (
    package as pipeline_warm_up,
)


class SparkCommand(TyperCommand):
    """A command that needs Spark and says so in a sentence, before anything imports it."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command if Spark can run."""
        from penstock.spark.requirements import require_spark

        require_spark()
        return super().invoke(ctx)


app = family(
    "Run the data pipeline on Spark, as streams or in batch.",
    "penstock pipeline run",
    "penstock pipeline audit --help",
)


@app.callback()
def pipeline() -> None:
    """Run the data pipeline on Spark: streaming and batch jobs over events, jobs and attempts."""


app.command(epilog=run.EXAMPLES, cls=SparkCommand)(run.run)
app.command(epilog=fan_out.EXAMPLES, cls=SparkCommand)(fan_out.fan_out)
app.command(epilog=dispatch.EXAMPLES, cls=SparkCommand)(dispatch.dispatch)
app.command(epilog=facts.EXAMPLES, cls=SparkCommand)(facts.facts)
# Not a SparkCommand: it has an exit code of its own for an audit that could not be made.
app.command(epilog=audit.EXAMPLES)(audit.audit)
app.command(epilog=golden_day.EXAMPLES, cls=SparkCommand)(golden_day.golden_day)
app.command(epilog=replay.EXAMPLES, cls=SparkCommand)(replay.replay)
app.command(epilog=repartition.EXAMPLES, cls=SparkCommand)(repartition.repartition)
app.command(epilog=report.EXAMPLES, cls=SparkCommand)(report.report)
app.command(epilog=package.EXAMPLES)(package.package)
app.command(epilog=pipeline_warm_up.WARM_UP_EXAMPLES, cls=SparkCommand)(pipeline_warm_up.warm_up)
