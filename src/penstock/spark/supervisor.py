"""Supervises the streaming queries of a Spark application: restarts them after failures, stops them after a batch."""

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

log = logging.getLogger(__name__)
FIRST_RETRY_S = 1.0
LAST_RETRY_S = 60.0
LAG_S = 5.0
_POLL_S = 0.02
_JOIN_S = 5.0
_POOL = "spark.scheduler.pool"


class StreamingJob(Protocol):
    """One streaming job of the pipeline.

    `start` continues from the checkpoint, so that a restart after a failure repeats at most one batch. The query has
    the job's name. `lag` and `handled` may be called from any thread at any time, even before `start`.
    """

    @property
    def name(self) -> str:
        """Return its name in commands, metrics and the checkpoint's path."""

    def start(self, spark: SparkSession, checkpoint: str) -> StreamingQuery:
        """Start the query; `checkpoint` is a directory of its own."""

    def lag(self) -> int | None:
        """Return how many rows wait for it; None if that is unknown."""

    def handled(self) -> int:
        """Return how many rows the driver has handled itself, without a micro-batch."""


class QuerySupervisor:
    """Starts the jobs, keeps them running, measures their lag, and stops them together."""

    def __init__(self, jobs: Sequence[StreamingJob], checkpoint: str, times: BatchTimes, *, once: bool = False) -> None:
        root = checkpoint.rstrip("/")
        starting = Lock()
        self._supervised = [SupervisedQuery(job, f"{root}/{job.name}", starting, once=once) for job in jobs]
        self._listener = ProgressListener(self.progresses, times)
        self._running = len(jobs)
        self._lock = Lock()
        self._stopping = Event()

    @property
    def progresses(self) -> list[QueryProgress]:
        """Return the progress of each job."""
        return [supervised.progress for supervised in self._supervised]

    @property
    def views(self) -> list[QueryView]:
        """Return a snapshot of each job."""
        return [progress.view() for progress in self.progresses]

    @property
    def failed(self) -> list[QueryView]:
        """Return the jobs that will not be restarted."""
        return [view for view in self.views if view.status is QueryStatus.FAILED]

    def start(self, spark: SparkSession, on_end: Callable[[], None]) -> None:
        """Start all jobs; call `on_end`, from another thread, when none runs any more."""

        def count_end() -> None:
            with self._lock:
                self._running -= 1
                last = self._running == 0
            if last:
                on_end()

        spark.streams.addListener(self._listener)
        for supervised in self._supervised:
            supervised.start(spark, count_end)
        Thread(target=self._measure, name="penstock-pipeline-lag", daemon=True).start()

    def stop(self, within_s: float) -> None:
        """Let the running micro-batches finish for up to `within_s`, and stop all queries at the same time."""
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


class SupervisedQuery:
    """A job and the thread that keeps it running; with `once` a failure ends it.

    Jobs start one after another, holding the same lock: Spark plans the sources of all in one Python process, and does
    not start one for each.
    """

    def __init__(self, job: StreamingJob, checkpoint: str, starting: Lock, *, once: bool) -> None:
        self.progress = QueryProgress(job.name, job.handled)
        self._job = job
        self._checkpoint = checkpoint
        self._starting = starting
        self._once = once
        self._stopping = Event()
        self._query: StreamingQuery | None = None
        self._thread: Thread | None = None

    def start(self, spark: SparkSession, on_end: Callable[[], None]) -> None:
        """Start the job in its thread, which calls `on_end` when it will not run any more."""

        def work() -> None:
            self._run(spark)
            on_end()

        self._thread = Thread(target=work, name=f"penstock-{self._job.name}", daemon=True)
        self._thread.start()

    def stop(self, deadline_s: float) -> None:
        """Let the running micro-batch finish, until `deadline_s` on the stopwatch, then stop the query."""
        self._stopping.set()
        if (query := self._query) is not None:
            try:
                finish_after_batch(query)
                self._await_batch(query, deadline_s)
                query.stop()
            except Exception as error:
                log.warning("%s could not be stopped: %s", self._job.name, reason_of(error))
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def measure(self) -> None:
        """Measure how many rows wait for the job."""
        try:
            self.progress.measured(self._job.lag())
        except Exception as error:
            log.debug("cannot measure the lag of %s: %s", self._job.name, error)
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
                # A job that made progress before it failed can run.
                if self.progress.batches > batches:
                    backoff.succeeded()
                backoff.failed()
                self._retry_later(error, backoff.delay_s)
        self.progress.ended(QueryStatus.STOPPED if self._stopping.is_set() else QueryStatus.FINISHED)

    def _await_query(self, spark: SparkSession) -> None:
        # The queries of an application share its cores fairly, each in its own pool.
        spark.sparkContext.setLocalProperty(_POOL, self._job.name)
        with self._starting:
            query = self._query = self._job.start(spark, self._checkpoint)
        self.progress.started()
        try:
            # A stop during the start did not know of the query.
            if self._stopping.is_set():
                query.stop()
            query.awaitTermination()
        finally:
            self._query = None

    def _retry_later(self, error: Exception, retry_s: float) -> None:
        reason = reason_of(error)
        self.progress.failed(reason, retry_s)
        log.warning("%s failed and starts again in %g s: %s", self._job.name, retry_s, reason)
        log.debug("the failure of %s", self._job.name, exc_info=error)
        self._stopping.wait(retry_s)

    def _give_up(self, error: Exception, reason: str) -> None:
        self.progress.failed(reason, None)
        log.error("%s failed: %s", self._job.name, reason)
        log.debug("the failure of %s", self._job.name, exc_info=error)

    def _await_batch(self, query: StreamingQuery, deadline_s: float) -> None:
        """Wait until the running batch is done, because `StreamingQuery.stop` would interrupt it."""
        batches = self.progress.batches
        look = Event()
        while query.status["isTriggerActive"] and self.progress.batches == batches:
            if stopwatch() >= deadline_s:
                log.warning("%s is stopped during a micro-batch, which will be repeated", self._job.name)
                return
            look.wait(_POLL_S)


def finish_after_batch(query: StreamingQuery) -> None:
    """Let a query begin no more batches, which `StreamingQuery.stop` cannot do; it still has to be stopped.

    `stop` interrupts a running batch, and between two batches without a pause there is no time to call it. A query
    whose state is TERMINATED begins no other batch and skips one that is being planned. The state has no public setter,
    so it is set through the JVM, as in Spark 4.3.
    """
    try:
        jvm = get_active_spark_context()._jvm
        assert jvm is not None
        ended = getattr(getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, "TERMINATED$"), "MODULE$")
        query._jsq.streamingQuery().state().set(ended)
    except Exception as error:
        # A batch that begins at the wrong moment is then interrupted, and repeated at the next start.
        log.debug("cannot prevent more batches of %s: %s", query.name, error)


def is_up(spark: SparkSession) -> bool:
    """Return whether the application still runs; the loss of the JVM or of the cluster ends it."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False
