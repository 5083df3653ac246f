"""The whole of `pipeline run` in its own process, with real queries: it tells, restarts, and stops gracefully."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.rigs import ticking_pipeline
from tests.rigs.penstock_process import PenstockProcess, descendants, wait_until

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

WAIT_S = 90


class TickingPipeline(PenstockProcess):
    """The process, and what it tells."""

    program = (sys.executable, str(Path(ticking_pipeline.__file__)))

    def __init__(self, directory: Path, *arguments: str) -> None:
        super().__init__(directory, "pipeline", (str(directory), *arguments))

    def query(self, name: str) -> dict[str, Any]:
        queries = json.loads(self.get("/api/pipeline"))["queries"]
        found: dict[str, Any] = next(query for query in queries if query["name"] == name)
        return found

    def metric(self, line_start: str) -> float:
        lines = self.get("/metrics").splitlines()
        return float(next(line for line in lines if line.startswith(line_start)).rpartition(" ")[2])

    def notes(self, name: str) -> list[list[str]]:
        file = self.directory / f"{name}.txt"
        return [line.split(" ", 1) for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, holds: Callable[[], bool]) -> None:
        wait_until(lambda: self.has_ended or holds(), WAIT_S, self.log)
        assert not self.has_ended, self.log()

    def readiness(self) -> tuple[int, str]:
        """How it answers to a probe."""
        try:
            return 200, self.get("/health/ready")
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()


def is_alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def test_a_failing_query_restarts_with_back_off_while_others_go_on_and_all_stops_after_its_batch(
    tmp_path: Path,
) -> None:
    with TickingPipeline(tmp_path, "on", "steady", "slow", "failing") as rig:
        rig.until(lambda: rig.query("failing")["failures"] >= 3)
        failing = rig.query("failing")
        assert failing["lastError"] == "RuntimeError: the pipe is broken"
        assert failing["restarts"] >= 2
        assert failing["lag"] is None
        tries = [float(at) for at, _ in rig.notes("failing")]
        pauses = [later - earlier for earlier, later in pairwise(tries)]
        assert pauses[0] >= 1.0
        assert pauses[1] >= 2.0
        assert "failing failed and starts again in 1 s: RuntimeError: the pipe is broken" in rig.log()
        assert "failing failed and starts again in 2 s" in rig.log()
        assert rig.metric('penstock_pipeline_failures_total{query="failing"}') >= 3
        rig.until(lambda: rig.query("failing")["status"] == "WAITING")
        status, body = rig.readiness()
        assert (status, "failing is waiting" in body) == (503, True)
        assert rig.metric('penstock_pipeline_up{query="failing"}') == 0

        rig.until(lambda: rig.query("steady")["batches"] > 0)
        steady = rig.query("steady")
        assert steady["status"] == "RUNNING"
        assert steady["rows"] == steady["batches"] * 10 > 0
        assert steady["lag"] == 7
        assert steady["restarts"] == 0
        assert rig.metric('penstock_pipeline_lag_rows{query="steady"}') == 7
        assert rig.metric('penstock_pipeline_rows_total{query="steady"}') >= steady["rows"]
        assert rig.metric('penstock_pipeline_batch_seconds_count{query="steady"}') >= steady["batches"]

        (tmp_path / "mended").touch()
        rig.until(lambda: rig.query("failing")["status"] == "RUNNING" and rig.query("failing")["batches"] > 0)
        rig.until(lambda: rig.readiness()[0] == 200)

        children = descendants(rig.pid)
        assert children
        begun = len(rig.notes("slow"))
        rig.until(lambda: len(rig.notes("slow")) > begun and rig.notes("slow")[-1][1].startswith("begin"))
        rig.send(signal.SIGTERM)
        assert rig.wait() == 0, rig.log()
        texts = [text for _, text in rig.notes("slow")]
        assert texts[-1].startswith("end")
        assert texts == [f"{word} {batch}" for batch in range(len(texts) // 2) for word in ("begin", "end")]
        assert "in the middle of" not in rig.log()
        wait_until(lambda: not any(is_alive(pid) for pid in children), 10, lambda: "Spark outlives penstock")


def test_once_ends_by_itself_and_a_failure_is_exit_code_1(tmp_path: Path) -> None:
    rig = TickingPipeline(tmp_path, "once", "failing")
    rig.launch()
    assert rig.wait() == 1
    assert "error: failing failed: RuntimeError: the pipe is broken" in rig.log()
    assert len(rig.notes("failing")) == 1


def test_a_lost_jvm_ends_it_with_a_sentence_for_the_service_manager_to_start_it_again(tmp_path: Path) -> None:
    with TickingPipeline(tmp_path, "on", "steady") as rig:
        rig.until(lambda: rig.query("steady")["batches"] > 0)
        for pid in descendants(rig.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert rig.wait() == 1, rig.log()
        assert rig.log().splitlines()[-1] == "error: steady failed: Spark has ended; start the pipeline again"
        assert "Traceback" not in rig.log()
