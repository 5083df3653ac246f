"""The streaming jobs that `penstock pipeline run` runs together, made as the command line and the configuration say."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from penstock.cli.pipeline_options import database_of, lake_of

if TYPE_CHECKING:
    from penstock.ops.config import Config
    from penstock.spark.supervision import StreamingJob


class Stream(StrEnum):
    """The streaming jobs."""

    FAN_OUT = "fan-out"
    DISPATCH = "dispatch"
    FACTS = "facts"


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Makes streaming jobs on one database."""

    config: "Config"
    data: Path | None
    database: str | None
    queue: str = ""
    endpoint: str = ""
    lake: str = ""
    once: bool = False

    def job(self, stream: Stream) -> "StreamingJob":
        """One of them."""
        makers = {Stream.FAN_OUT: self._fan_out, Stream.DISPATCH: self._dispatch, Stream.FACTS: self._facts}
        return makers[stream]()

    def _fan_out(self) -> "StreamingJob":
        from penstock.events.fan_out.spark import FanOutJob, FanOutSettings

        options = self.config.pipeline
        settings = FanOutSettings(most_rows=options.max_rows_per_batch, trigger_ms=options.trigger_ms, once=self.once)
        return FanOutJob(database_of(self.config, self.data, self.database), settings)

    def _facts(self) -> "StreamingJob":
        from penstock.history.lake.job import FactsJob, FactsSettings

        lake = lake_of(self.config, self.data, self.lake)
        settings = FactsSettings(lake=lake, most_rows=self.config.pipeline.max_rows_per_batch, once=self.once)
        return FactsJob(database_of(self.config, self.data, self.database), settings)

    def _dispatch(self) -> "StreamingJob":
        from penstock.cli.jobs_database import jobs_database
        from penstock.edge.node import process_ids
        from penstock.events.dispatch.settings import scheduler_settings
        from penstock.events.dispatch.spark import DispatchJob, LeaseSettings
        from penstock.events.dispatch.spark_messages import Destination, DispatchSettings
        from penstock.events.dispatch.spark_round import Rounds

        options = self.config.scheduler
        queue = self.queue or options.queue
        if not queue:
            raise typer.BadParameter(
                "dispatch needs a queue: give --queue URI, set scheduler.queue, or leave it out by --only fan-out,facts"
            )
        rounds = Rounds(
            database=database_of(self.config, self.data, self.database),
            destination=Destination(
                queue_uri=queue,
                endpoint=self.endpoint or options.endpoint,
                secrets=jobs_database(self.config, self.data, self.database, listen=False).secrets,
                pool=options.pool,
            ),
            settings=DispatchSettings(scheduler=scheduler_settings(options)),
        )
        lease = LeaseSettings(
            standby=options.standby or "off", ttl_s=options.lease_ttl_s, renew_s=options.lease_renew_s
        )
        return DispatchJob(rounds, lease, once=self.once, ids=process_ids(self.config.node.id))
