"""Processor time of a tree of real processes, with children that have ended."""

import os
import subprocess
import sys

import pytest

from penstock.domain.errors import FailedPrecondition
from penstock.tools.bench.end_to_end.processor_time import RunningProcess, parent_of, spent_s, usage

BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"
# It has a child that was busy and has ended, and waits.
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BUSY!r}], check=True)
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_time_of_a_child_that_ended_is_its_parents() -> None:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        before = usage({os.getpid(): "test"})
        assert process.stdout.readline() == "ready\n"
        after = usage({os.getpid(): "test"})
        alone = usage({process.pid: "parent"})
        process.communicate("")

    assert spent_s(before, after)["test"] >= 0.29
    assert alone.cpu_s["parent"] >= 0.29
    assert alone.processes == 1
    assert alone.memory_mb > 1


@pytest.mark.parametrize(
    ("name", "arguments", "of_parent", "part"),
    [
        ("python", ["python", "-m", "penstock.ops.child", "serve", "sqs", "--port", "0"], "up", "sqs"),
        ("python", ["python", "-m", "penstock.ops.child", "serve", "dispatch"], "up", "api"),
        ("python", ["python", "-m", "penstock.ops.child", "pipeline", "run"], "up", "pipeline"),
        ("java", ["java", "-cp", "spark.jar"], "pipeline", "jvm"),
        ("python", ["python", "-m", "pyspark.daemon"], "jvm", "workers"),
        ("python", ["python", "-m", "pyspark.daemon"], "workers", "workers"),
        ("postgres", ["postgres: idle"], "postgres", "postgres"),
    ],
)
def test_a_process_belongs_to_a_part(name: str, arguments: list[str], of_parent: str, part: str) -> None:
    assert RunningProcess(2, 1, name, arguments, 0.0).part(of_parent) == part


def test_parents() -> None:
    assert parent_of(os.getpid()) == os.getppid()
    with pytest.raises(FailedPrecondition, match="no process"):
        parent_of(0x7FFFFFFF)
