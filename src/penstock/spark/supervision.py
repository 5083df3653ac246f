"""All streaming jobs of one Spark application, supervised together.

What the supervisor runs: a named streaming query that can be started, and started again.

No micro-batch after the one that runs: what `StreamingQuery.stop` lacks.

`stop` breaks off whatever runs, and between two batches that follow each other without a pause nobody is quick enough
to call it. A query whose state says that it has ended begins no other batch, and one that is still being planned is not
carried out; only one that is being carried out comes to its end. The state has no public setter, so it is reached
through the JVM, as Spark 4.3 has it.

One streaming job kept running in a thread of its own: started again after a failure, stopped after its batch.
"""

import logging
from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread
from typing import Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import get_active_spark_context

from penstock.domain.retry import Backoff
from penstock.edge.clock import stopwatch
from penstock.spark.errors import reason_of
from penstock.spark.listener import ProgressListener
from penstock.spark.metrics import BatchTimes
from penstock.spark.progress import QueryProgress, QueryStatus, QueryView


class StreamingJob(Protocol):
    """One streaming job of the pipeline.

    `start` begins where the checkpoint stands, so that starting it again after a failure repeats at most one batch.
    The query's name is the job's. `lag` may be asked from any thread at any time, also before `start`.
    """

    @property
    def name(self) -> str:
        """What it is called in commands, metrics and the checkpoint's path."""

    def start(self, spark: SparkSession, checkpoint: str) -> StreamingQuery:
        """Start the query; `checkpoint` is a directory of its own."""

    def lag(self) -> int | None:
        """How many rows wait for it, or None if that cannot be told."""


log = logging.getLogger(__name__)


def let_end(query: StreamingQuery) -> None:
    """Let a query begin no more batches; it has ended when no trigger is active, and is still to be stopped."""
    try:
        jvm = get_active_spark_context()._jvm
        assert jvm is not None
        ended = getattr(getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, "TERMINATED$"), "MODULE$")
        query._jsq.streamingQuery().state().set(ended)
    except Exception as error:
        # Then a batch that begins in the wrong moment is broken off, and repeated at the next start.
        log.debug("%s cannot be told to begin no more batches: %s", query.name, error)


FIRST_RETRY_S = 1.0
LAST_RETRY_S = 60.0
_LOOK_S = 0.02
_JOIN_S = 5.0
_POOL = "spark.scheduler.pool"


class Supervised:
    """A job and the thread that keeps it running; with `once` a failure is its end."""

    def __init__(self, job: StreamingJob, checkpoint: str, *, once: bool) -> None:
        self.progress = QueryProgress(job.name)
        self._job = job
        self._checkpoint = checkpoint
        self._once = once
        self._stopping = Event()
        self._query: StreamingQuery | None = None
        self._thread: Thread | None = None

    def start(self, spark: SparkSession, tell_end: Callable[[], None]) -> None:
        """Start it in its thread, which calls `tell_end` when it will not run any more."""

        def work() -> None:
            self._run(spark)
            tell_end()

        self._thread = Thread(target=work, name=f"penstock-{self._job.name}", daemon=True)
        self._thread.start()

    def stop(self, deadline_s: float) -> None:
        """Let the running micro-batch end, until `deadline_s` on the stopwatch, then stop the query."""
        self._stopping.set()
        if (query := self._query) is not None:
            try:
                let_end(query)
                self._await_batch(query, deadline_s)
                query.stop()
            except Exception as error:
                log.warning("%s does not stop by itself: %s", self._job.name, reason_of(error))
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def measure(self) -> None:
        """Ask the job how much waits for it."""
        try:
            self.progress.measured(self._job.lag())
        except Exception as error:
            log.debug("cannot tell how much waits for %s: %s", self._job.name, error)
            self.progress.measured(None)

    def _run(self, spark: SparkSession) -> None:
        backoff = Backoff(FIRST_RETRY_S, LAST_RETRY_S)
        while not self._stopping.is_set():
            batches = self.progress.batches
            try:
                self._await_query(spark)
                break
            except Exception as error:
                if self._stopping.is_set():
                    break
                if not is_up(spark):
                    self._give_up(error, "Spark has ended; start the pipeline again")
                    return
                if self._once:
                    self._give_up(error, reason_of(error))
                    return
                # A job that got somewhere before it failed is not one that cannot run.
                if self.progress.batches > batches:
                    backoff.succeeded()
                backoff.failed()
                self._retry_later(error, backoff.delay_s)
        self.progress.ended(QueryStatus.STOPPED if self._stopping.is_set() else QueryStatus.FINISHED)

    def _await_query(self, spark: SparkSession) -> None:
        # The queries of an application share its cores fairly, each in a pool of its own.
        spark.sparkContext.setLocalProperty(_POOL, self._job.name)
        query = self._query = self._job.start(spark, self._checkpoint)
        self.progress.started()
        try:
            # Told to stop while it started: nobody else knew of the query then.
            if self._stopping.is_set():
                query.stop()
            query.awaitTermination()
        finally:
            self._query = None

    def _retry_later(self, error: Exception, retry_s: float) -> None:
        reason = reason_of(error)
        self.progress.failed(reason, retry_s)
        log.warning("%s failed and starts again in %g s: %s", self._job.name, retry_s, reason)
        log.debug("what made %s fail", self._job.name, exc_info=error)
        self._stopping.wait(retry_s)

    def _give_up(self, error: Exception, reason: str) -> None:
        self.progress.failed(reason, None)
        log.error("%s failed: %s", self._job.name, reason)
        log.debug("what made %s fail", self._job.name, exc_info=error)

    def _await_batch(self, query: StreamingQuery, deadline_s: float) -> None:
        """Wait until no batch runs, or the one that did is done: `StreamingQuery.stop` would break it off."""
        batches = self.progress.batches
        look = Event()
        while query.status["isTriggerActive"] and self.progress.batches == batches:
            if stopwatch() >= deadline_s:
                log.warning("%s is stopped in the middle of a micro-batch, which will be repeated", self._job.name)
                return
            look.wait(_LOOK_S)


def is_up(spark: SparkSession) -> bool:
    """Whether the application still runs; a lost JVM or a lost cluster ends it."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


LAG_S = 5.0


class QuerySupervisor:
    """Starts the jobs, keeps them running, measures how much waits for them, and stops them together."""

    def __init__(self, jobs: Sequence[StreamingJob], checkpoint: str, times: BatchTimes, *, once: bool = False) -> None:
        root = checkpoint.rstrip("/")
        self._supervised = [Supervised(job, f"{root}/{job.name}", once=once) for job in jobs]
        self._listener = ProgressListener(self.progresses, times)
        self._running = len(jobs)
        self._lock = Lock()
        self._stopping = Event()

    @property
    def progresses(self) -> list[QueryProgress]:
        """How far each job is."""
        return [supervised.progress for supervised in self._supervised]

    @property
    def views(self) -> list[QueryView]:
        """How each job is."""
        return [progress.view() for progress in self.progresses]

    @property
    def failed(self) -> list[QueryView]:
        """The jobs that will not be started again."""
        return [view for view in self.views if view.status is QueryStatus.FAILED]

    def start(self, spark: SparkSession, tell_end: Callable[[], None]) -> None:
        """Start all jobs; `tell_end` is called, from another thread, when none of them runs any more."""

        def count_end() -> None:
            with self._lock:
                self._running -= 1
                last = self._running == 0
            if last:
                tell_end()

        spark.streams.addListener(self._listener)
        for supervised in self._supervised:
            supervised.start(spark, count_end)
        Thread(target=self._measure, name="penstock-pipeline-lag", daemon=True).start()

    def stop(self, within_s: float) -> None:
        """Let the running micro-batches end, for a while, and stop the queries, all at the same time."""
        self._stopping.set()
        deadline_s = stopwatch() + within_s
        stops = [Thread(target=supervised.stop, args=(deadline_s,), daemon=True) for supervised in self._supervised]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()

    def _measure(self) -> None:
        while not self._stopping.is_set():
            for supervised in self._supervised:
                supervised.measure()
            self._stopping.wait(LAG_S)
