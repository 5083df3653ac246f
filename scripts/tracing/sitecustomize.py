"""Python imports this at its start in every process of a walk: it records which functions of Penstock are called.

`scripts/walk` names a directory in WALK_DIRECTORY. The byte in its file `window` says which event is on its way, 0 if
none. The first call of each function in a window becomes a line of its file `calls`, which all processes append to.
"""

import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType


def _record_calls(directory: Path, package: str) -> None:
    with (directory / "window").open("rb") as file:
        window = mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ)
    calls = os.open(directory / "calls", os.O_WRONLY | os.O_APPEND)
    seen: set[tuple[int, CodeType]] = set()

    def on_call(frame: FrameType, event: str, _argument: object) -> None:
        number = window[0]
        if number == 0 or event != "call" or (number, frame.f_code) in seen:
            return
        seen.add((number, frame.f_code))
        path = _path_in_package(frame.f_code.co_filename, package)
        if path and frame.f_code.co_name != "<module>":
            line = f"{number}\t{time.monotonic_ns()}\t{_process()}\t{path}\n"
            os.write(calls, line.encode())

    os.register_at_fork(after_in_child=seen.clear)
    _trace_all_threads(on_call)


def _trace_all_threads(on_call: Callable[[FrameType, str, object], None]) -> None:
    threading.setprofile(on_call)
    sys.setprofile(on_call)


def _path_in_package(filename: str, package: str) -> str:
    """Where a file is in the package; empty if it is elsewhere. Spark's workers import the package from an archive."""
    if filename.startswith(package):
        return filename[len(package) :]
    return filename.partition(".zip/penstock/")[2]


def _process() -> str:
    """What runs in this process: `serve api`, `pipeline run`, or a worker of Spark."""
    words = sys.argv[1:3] if sys.argv[0].endswith(("penstock", "__main__.py")) else ["spark", "worker"]
    return " ".join(words)


if "WALK_DIRECTORY" in os.environ:
    _record_calls(Path(os.environ["WALK_DIRECTORY"]), os.environ["WALK_PACKAGE"])
