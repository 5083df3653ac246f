"""All streaming jobs of one Spark application, supervised together."""

from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread

from pyspark.sql import SparkSession

from penstock.edge.clock import stopwatch
from penstock.pipeline.listener import ProgressListener
from penstock.pipeline.metrics import BatchTimes
from penstock.pipeline.progress import Progress, QueryStatus, QueryView
from penstock.pipeline.streaming_job import StreamingJob
from penstock.pipeline.supervised import Supervised

LAG_S = 5.0


class Supervisor:
    """Starts the jobs, keeps them running, measures how much waits for them, and stops them together."""

    def __init__(self, jobs: Sequence[StreamingJob], checkpoint: str, times: BatchTimes, *, once: bool = False) -> None:
        root = checkpoint.rstrip("/")
        self._supervised = [Supervised(job, f"{root}/{job.name}", once=once) for job in jobs]
        self._listener = ProgressListener(self.progresses, times)
        self._running = len(jobs)
        self._lock = Lock()
        self._stopping = Event()

    @property
    def progresses(self) -> list[Progress]:
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
