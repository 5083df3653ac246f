"""`penstock pipeline`: the Spark jobs.

A job's command is `cli/pipeline_JOB.py` with one function named after the job and its EXAMPLES, and one line below.
"""

from typing import Any

from typer.core import TyperCommand

from penstock.cli import (
    pipeline_audit,
    pipeline_dispatch,
    pipeline_facts,
    pipeline_fan_out,
    pipeline_golden_day,
    pipeline_package,
    pipeline_repartition,
    pipeline_replay,
    pipeline_report,
    pipeline_run,
    pipeline_warm_up,
)
from penstock.cli.family import family


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


app.command(epilog=pipeline_run.EXAMPLES, cls=SparkCommand)(pipeline_run.run)
app.command(epilog=pipeline_fan_out.EXAMPLES, cls=SparkCommand)(pipeline_fan_out.fan_out)
app.command(epilog=pipeline_dispatch.EXAMPLES, cls=SparkCommand)(pipeline_dispatch.dispatch)
app.command(epilog=pipeline_facts.EXAMPLES, cls=SparkCommand)(pipeline_facts.facts)
# Not a SparkCommand: it has an exit code of its own for an audit that could not be made.
app.command(epilog=pipeline_audit.EXAMPLES)(pipeline_audit.audit)
app.command(epilog=pipeline_golden_day.EXAMPLES, cls=SparkCommand)(pipeline_golden_day.golden_day)
app.command(epilog=pipeline_replay.EXAMPLES, cls=SparkCommand)(pipeline_replay.replay)
app.command(epilog=pipeline_repartition.EXAMPLES, cls=SparkCommand)(pipeline_repartition.repartition)
app.command(epilog=pipeline_report.EXAMPLES, cls=SparkCommand)(pipeline_report.report)
app.command(epilog=pipeline_package.EXAMPLES)(pipeline_package.package)
app.command(epilog=pipeline_warm_up.WARM_UP_EXAMPLES, cls=SparkCommand)(pipeline_warm_up.warm_up)
