"""Keeping one job running, without Spark: queries that end, fail and hang as the test wants."""

import logging
import os
from collections.abc import Callable
from threading import Event, Lock
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.edge.clock import stopwatch
from penstock.spark import supervisor
from penstock.spark.errors import reason_of
from penstock.spark.jvm import LogRelay
from penstock.spark.metrics import ProgressCollector
from penstock.spark.progress import BatchProgress, QueryProgress, QueryStatus
from penstock.spark.supervisor import SupervisedQuery

WAIT_S = 60


class FakeContext:
    """As much of a Spark application as the supervisor asks for."""

    def __init__(self) -> None:
        self.stopped = False
        self._jsc = self

    def setLocalProperty(self, key: str, value: str) -> None:  # noqa: N802  as Spark calls it
        assert (key, value) == ("spark.scheduler.pool", "orders")

    def sc(self) -> "FakeContext":
        return self

    def isStopped(self) -> bool:  # noqa: N802
        return self.stopped


class FakeSpark:
    def __init__(self) -> None:
        self.sparkContext = FakeContext()


class FakeQuery:
    """Ends when it is stopped, or at once with an error."""

    name = "orders"

    def __init__(self, error: Exception | None = None, *, batch_running: bool = False, ends: bool = False) -> None:
        self._error = error
        self._ended = Event()
        self.batch_running = batch_running
        self.asked = Event()
        self.stops = 0
        if ends or error is not None:
            self._ended.set()

    @property
    def status(self) -> dict[str, bool]:
        self.asked.set()
        return {"isTriggerActive": self.batch_running}

    def stop(self) -> None:
        self.stops += 1
        self._ended.set()

    def awaitTermination(self) -> None:  # noqa: N802
        assert self._ended.wait(WAIT_S)
        if self._error is not None:
            raise self._error


class FakeJob:
    name = "orders"

    def __init__(self, start: Callable[[int], FakeQuery], lag: Callable[[], int | None] = lambda: None) -> None:
        self._start = start
        self._lag = lag
        self.starts = 0

    def start(self, spark: SparkSession, checkpoint: str) -> StreamingQuery:
        assert checkpoint == "place/orders"
        self.starts += 1
        return cast(StreamingQuery, self._start(self.starts))

    def lag(self) -> int | None:
        return self._lag()

    def handled(self) -> int:
        return 3


class Run:
    """A supervised job and its end."""

    def __init__(self, job: FakeJob, *, once: bool = False) -> None:
        self.spark = FakeSpark()
        self.ended = Event()
        self.supervised = SupervisedQuery(job, "place/orders", Lock(), once=once)
        self.supervised.start(cast(SparkSession, self.spark), self.ended.set)

    @property
    def view(self) -> Any:
        return self.supervised.progress.view()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(supervisor, "LAST_RETRY_S", 0.04)


def pauses(caplog: pytest.LogCaptureFixture) -> list[float]:
    return [float(cast(tuple[Any, ...], record.args)[1]) for record in caplog.records if "starts again" in record.msg]


def test_pauses_double_up_to_the_longest(caplog: pytest.LogCaptureFixture) -> None:
    last = FakeQuery(ends=True)
    job = FakeJob(lambda start: FakeQuery(ValueError("no")) if start <= 5 else last)
    run = Run(job)
    assert run.ended.wait(WAIT_S)
    assert pauses(caplog) == [0.01, 0.02, 0.04, 0.04, 0.04]
    assert (run.view.status, run.view.failures, run.view.restarts) == (QueryStatus.FINISHED, 5, 5)


def test_a_batch_that_was_done_makes_the_next_pause_short_again(caplog: pytest.LogCaptureFixture) -> None:
    def start(number: int) -> FakeQuery:
        if number == 3:
            run.supervised.progress.advanced(BatchProgress(0, 10, 5, 2000.0))
        return FakeQuery(ends=True) if number == 4 else FakeQuery(ValueError("no"))

    gate = Event()
    job = FakeJob(lambda number: (gate.wait(WAIT_S), start(number))[1])
    run = Run(job)
    gate.set()
    assert run.ended.wait(WAIT_S)
    assert pauses(caplog) == [0.01, 0.02, 0.01]


def test_a_job_that_cannot_even_start_is_tried_again() -> None:
    def start(number: int) -> FakeQuery:
        if number == 1:
            raise OSError("the database is away")
        return FakeQuery(ends=True)

    run = Run(FakeJob(start))
    assert run.ended.wait(WAIT_S)
    assert (run.view.failures, run.view.last_error) == (1, "the database is away")


def test_once_does_not_try_again() -> None:
    job = FakeJob(lambda _: FakeQuery(ValueError("no")))
    run = Run(job, once=True)
    assert run.ended.wait(WAIT_S)
    assert (job.starts, run.view.status, run.view.last_error) == (1, QueryStatus.FAILED, "no")


def test_a_lost_application_is_the_end() -> None:
    gate = Event()
    job = FakeJob(lambda _: (gate.wait(WAIT_S), FakeQuery(ConnectionError("the JVM is gone")))[1])
    run = Run(job)
    run.spark.sparkContext.stopped = True
    gate.set()
    assert run.ended.wait(WAIT_S)
    assert (job.starts, run.view.status) == (1, QueryStatus.FAILED)


def stop_in_thread(run: Run, within_s: float) -> Event:
    from threading import Thread

    done = Event()

    def stop() -> None:
        run.supervised.stop(stopwatch() + within_s)
        done.set()

    Thread(target=stop, daemon=True).start()
    return done


def test_a_stop_waits_for_the_running_batch() -> None:
    query = FakeQuery(batch_running=True)
    run = Run(FakeJob(lambda _: query))
    while run.view.status is not QueryStatus.RUNNING:
        assert not run.ended.wait(0.01)
    done = stop_in_thread(run, WAIT_S)
    assert query.asked.wait(WAIT_S)
    assert not done.wait(0.1)
    assert query.stops == 0
    query.batch_running = False
    assert done.wait(WAIT_S)
    assert (query.stops, run.view.status) == (1, QueryStatus.STOPPED)


def test_batches_without_a_pause_between_them_do_not_make_a_stop_wait_for_ever() -> None:
    query = FakeQuery(batch_running=True)
    run = Run(FakeJob(lambda _: query))
    while run.view.status is not QueryStatus.RUNNING:
        assert not run.ended.wait(0.01)
    done = stop_in_thread(run, WAIT_S)
    assert query.asked.wait(WAIT_S)
    run.supervised.progress.advanced(BatchProgress(0, 10, 5, 2000.0))
    assert done.wait(WAIT_S)
    assert query.stops == 1


def test_a_batch_that_takes_too_long_is_broken_off(caplog: pytest.LogCaptureFixture) -> None:
    query = FakeQuery(batch_running=True)
    run = Run(FakeJob(lambda _: query))
    while run.view.status is not QueryStatus.RUNNING:
        assert not run.ended.wait(0.01)
    assert stop_in_thread(run, 0.05).wait(WAIT_S)
    assert query.stops == 1
    assert "stopped during a micro-batch" in caplog.text


def test_a_stop_while_it_starts_stops_what_it_started() -> None:
    begun, gate = Event(), Event()
    query = FakeQuery()

    def start(_: int) -> FakeQuery:
        begun.set()
        gate.wait(WAIT_S)
        return query

    run = Run(FakeJob(start))
    assert begun.wait(WAIT_S)
    done = stop_in_thread(run, WAIT_S)
    gate.set()
    assert done.wait(WAIT_S)
    assert run.ended.wait(WAIT_S)
    assert (query.stops, run.view.status) == (1, QueryStatus.STOPPED)


def test_a_stop_ends_a_pause_between_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_RETRY_S", 3600.0)
    run = Run(FakeJob(lambda _: FakeQuery(ValueError("no"))))
    while run.view.status is not QueryStatus.WAITING:
        assert not run.ended.wait(0.01)
    assert stop_in_thread(run, WAIT_S).wait(WAIT_S)
    assert run.ended.wait(WAIT_S)


def test_lag_that_cannot_be_told_is_none() -> None:
    answers: list[int | Exception] = [7, OSError("nobody knows")]

    def lag() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    supervised_job = SupervisedQuery(FakeJob(lambda _: FakeQuery(), lag), "place/orders", Lock(), once=False)
    supervised_job.measure()
    assert supervised_job.progress.view().lag == 7
    supervised_job.measure()
    assert supervised_job.progress.view().lag is None


def test_rows_that_the_driver_handled_itself_are_counted_with_those_of_micro_batches() -> None:
    progress = SupervisedQuery(FakeJob(lambda _: FakeQuery()), "place/orders", Lock(), once=False).progress
    progress.advanced(BatchProgress(4, 10, 250, 40.0))
    assert progress.view().rows == 13


def test_metrics_leave_out_a_lag_that_is_not_known() -> None:
    known, unknown = QueryProgress("known"), QueryProgress("unknown")
    known.measured(3)
    known.started()
    known.advanced(BatchProgress(4, 10, 250, 40.0))
    registry = CollectorRegistry()
    registry.register(ProgressCollector([known, unknown]))
    text = generate_latest(registry).decode()
    assert 'penstock_pipeline_lag_rows{query="known"} 3.0' in text
    assert 'lag_rows{query="unknown"}' not in text
    assert 'penstock_pipeline_up{query="known"} 1.0' in text
    assert 'penstock_pipeline_up{query="unknown"} 0.0' in text
    assert 'penstock_pipeline_rows_total{query="known"} 10.0' in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no", "no"),
        ("[STREAM_FAILED] Query failed\n\nJVM stacktrace:\n\tat a.b", "[STREAM_FAILED] Query failed"),
        ("Traceback:\n  File x\npsycopg.OperationalError: away\nValueError: last one\n", "ValueError: last one"),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: it is full. SQLSTATE: X",
            "it is full. SQLSTATE: X",
        ),
        ("", "RuntimeError"),
    ],
)
def test_a_reason_is_the_innermost_cause_on_one_line(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason


def test_what_the_jvm_says_keeps_its_level_and_stack_traces_are_for_those_who_look_for_bugs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="penstock.spark")
    reader, writer = os.pipe()
    relay = LogRelay(reader)
    lines = [
        ("WARNING: Using incubator modules: jdk.incubator.vector", None, ""),
        ("ERROR TaskSchedulerImpl: Lost executor 1", logging.ERROR, "TaskSchedulerImpl: Lost executor 1"),
        ("WARN Worker: slow", logging.WARNING, "Worker: slow"),
        ("Traceback (most recent call last):", logging.DEBUG, "Traceback (most recent call last):"),
        ("  File x", logging.DEBUG, "  File x"),
        ("ValueError: no", logging.DEBUG, "ValueError: no"),
        ("said by a task", logging.INFO, "said by a task"),
    ]
    with os.fdopen(writer, "w") as out:
        out.writelines(f"{line}\n" for line, _, _ in lines)
    assert relay.reason() == "ERROR TaskSchedulerImpl: Lost executor 1"
    told = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert told == [(level, message) for _, level, message in lines if level is not None]
