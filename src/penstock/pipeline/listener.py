"""Spark's own word on the streaming queries, brought to the progress of each job."""

from collections.abc import Iterable

from penstock.pipeline.batch_listener import BatchListener, EndedBatch
from penstock.pipeline.metrics import BatchTimes
from penstock.pipeline.progress import Batch, Progress


class ProgressListener(BatchListener):
    """Notes every micro-batch; starts and ends are the supervisor's to note, who causes them."""

    def __init__(self, progresses: Iterable[Progress], times: BatchTimes) -> None:
        self._by_name = {progress.name: progress for progress in progresses}
        self._times = times

    def ended(self, batch: EndedBatch) -> None:
        """A micro-batch is done."""
        progress = self._by_name.get(batch.name or "")
        if progress is not None:
            told = Batch(batch.batch_id, batch.num_input_rows, batch.batch_duration, batch.processed_rows_per_second)
            progress.advanced(told)
            self._times.observe(progress.name, batch.batch_duration)
