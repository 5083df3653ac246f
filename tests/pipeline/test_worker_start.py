"""Python workers connect to Spark before they import it, which takes long on a busy machine."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.workers import worker_python

WITHIN_S = 60
# As if PySpark took long to import: until somebody opens the pipe.
SLOW_IMPORT = """
import sys
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "pyspark" and self in sys.meta_path:
            sys.meta_path.remove(self)
            open({pipe!r}).close()
sys.meta_path.insert(0, Slow())
"""


def test_a_worker_of_a_streaming_source_connects_before_it_imports_pyspark(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT.format(pipe=str(pipe)))
    with socket.socket(socket.AF_UNIX) as spark:
        spark.settimeout(WITHIN_S)
        spark.bind(str(tmp_path / "spark"))
        spark.listen()
        settings = {"PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "spark"), "PYTHONPATH": str(tmp_path)}
        module = "pyspark.sql.streaming.python_streaming_source_runner"
        command = [worker_python(sys.executable), "-m", module]
        with subprocess.Popen(command, env={**os.environ, **settings}) as worker:
            try:
                connection, _ = spark.accept()
                connection.settimeout(WITHIN_S)
                with connection, pipe.open("w"):
                    # Its first words are its process id, which it says when it has imported all.
                    assert int.from_bytes(connection.recv(4, socket.MSG_WAITALL)) == worker.pid
            finally:
                worker.kill()


def test_other_workers_start_as_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    python = worker_python(sys.executable)
    said = subprocess.run([python, "-c", "print('here')"], capture_output=True, text=True, check=True)
    assert said.stdout == "here\n"
    assert worker_python(python) == python


def test_without_a_place_for_the_script_workers_are_the_same_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert worker_python("/usr/bin/python3") == "/usr/bin/python3"
