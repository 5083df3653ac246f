"""`penstock pipeline`: the Spark jobs, and what prepares a machine or a cluster for them.

The command of a job is in `cli/pipeline_*.py`, with one line below.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from penstock.cli.family import examples, family
from penstock.cli.options import load_config
from penstock.cli.pipeline import audit, facts, forget, repartition, replay, report, run, sql
from penstock.cli.serve.tls import with_tls


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


app.command(epilog=run.RUN_EXAMPLES, cls=SparkCommand)(with_tls(run.run))
app.command(epilog=run.FAN_OUT_EXAMPLES, cls=SparkCommand)(with_tls(run.fan_out))
app.command(epilog=run.DISPATCH_EXAMPLES, cls=SparkCommand)(with_tls(run.dispatch))
app.command(epilog=facts.EXAMPLES, cls=SparkCommand)(facts.facts)
app.command("migrate-lake", epilog=facts.MIGRATE_EXAMPLES, cls=SparkCommand)(facts.migrate_lake)
app.command(epilog=forget.EXAMPLES, cls=SparkCommand)(forget.forget)
# Not a SparkCommand: it has an exit code of its own for an audit that failed.
app.command(epilog=audit.AUDIT_EXAMPLES)(audit.audit)
app.command(epilog=audit.GOLDEN_DAY_EXAMPLES, cls=SparkCommand)(audit.golden_day)
app.command(epilog=replay.EXAMPLES, cls=SparkCommand)(replay.replay)
app.command(epilog=repartition.EXAMPLES, cls=SparkCommand)(repartition.repartition)
app.command(epilog=report.EXAMPLES, cls=SparkCommand)(report.report)
app.command(epilog=sql.EXAMPLES, cls=SparkCommand)(sql.sql)


@app.command(epilog=examples("penstock pipeline package --output penstock.zip"))
def package(
    output: Annotated[Path, typer.Option(metavar="FILE", help="The file to write.")] = Path("penstock.zip"),
) -> None:
    """Write penstock as an archive for executors that lack it: spark-submit --py-files penstock.zip.

    The other commands do this by themselves; this one is for images, and for clusters with a storage of their own.
    """
    from penstock.domain.errors import Unavailable
    from penstock.spark.package_archive import write_package

    try:
        write_package(output)
    except OSError as error:
        raise Unavailable(
            f"cannot write {output}: {error.strerror or error}; give a file that can be written"
        ) from error
    typer.echo(f"wrote {output} ({output.stat().st_size / 2**10:.0f} KB)")


@app.command("warm-up", epilog=examples("penstock pipeline warm-up"), cls=SparkCommand)
def warm_up(ctx: typer.Context) -> None:
    """Make Spark start faster on this machine, once for each version of Java and Spark.

    It keeps an archive of Spark's classes, 160 MB, in the user's cache (XDG_CACHE_HOME, else ~/.cache). It takes a
    minute.
    """
    from penstock.spark.warm_up import warm_up as write_archive

    load_config(ctx)
    archive = write_archive()
    typer.echo(f"wrote {archive} ({archive.stat().st_size / 2**20:.0f} MB)")
